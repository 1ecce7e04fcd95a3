"""What a plan costs: pure functions with their sources."""
