"""Test doubles for asterism and its plugins."""
