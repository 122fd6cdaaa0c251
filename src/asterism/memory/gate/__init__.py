"""The gate: the one way to write to memory. Every tool, face, import and rule goes through it."""
