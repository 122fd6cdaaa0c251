"""The patterns that come with asterism; each is a pure decision over the state of a turn."""
