"""Channels: two-way doors to people."""
