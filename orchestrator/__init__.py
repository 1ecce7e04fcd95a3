"""Decides: specs, topology, placement, lifecycle and the store. No Ray, no torch, no web framework."""
