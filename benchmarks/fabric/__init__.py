"""Placements on an emulated network: see `__main__.py`."""
