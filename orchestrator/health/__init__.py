"""Measurements of ranks and nodes become verdicts. Pure: what is measured comes in as arrays, what to do goes out
as values."""
