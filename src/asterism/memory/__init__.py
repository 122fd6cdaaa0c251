"""The memory of agents: storing, reading, explaining, undoing and forgetting."""
