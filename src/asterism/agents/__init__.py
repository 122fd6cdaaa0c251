"""Agents at work: live state, the turn, its context and its calls."""
