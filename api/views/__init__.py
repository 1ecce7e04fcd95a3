"""Rows of the store as bodies of answers."""
