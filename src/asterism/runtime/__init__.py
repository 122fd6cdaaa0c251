"""The runtime: accepts messages, keeps lanes at work, sends what must go out."""
