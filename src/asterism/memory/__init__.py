"""What agents remember: how it is kept, found, explained, taken back and forgotten."""
