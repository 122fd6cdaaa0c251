"""Groups: patterns that decide which members take a turn, and the runner that carries it out."""
