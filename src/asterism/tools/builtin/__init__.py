"""The tools that come with asterism, one file a family; plugins declare theirs the same way."""
