"""Turns: a message is accepted once, answered in steps that survive a crash, and delivered."""
