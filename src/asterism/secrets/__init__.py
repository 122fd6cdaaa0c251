"""Keys of others at rest: sealed with a data key, which the master key wraps."""
