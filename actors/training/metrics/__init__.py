"""What a step cost: bytes sent by axis, time by phase, memory, FLOP/s."""
