"""Language models: one module per wire format, each fulfilling the port `Model`."""
