"""Sources: what flows in one way, such as folders of documents."""
