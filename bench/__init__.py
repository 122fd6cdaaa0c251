"""What a turn costs, measured against the floor of the same run."""
