"""A model's server over HTTP, whatever its wire format: address, keys, connection, trouble."""
