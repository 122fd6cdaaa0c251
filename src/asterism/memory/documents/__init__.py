"""The content of blocks."""
