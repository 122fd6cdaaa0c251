"""Adapters that let other harnesses drive asterism."""
