"""What to measure of a network and what the measurements say: pure; `actors/probe.py` measures."""
