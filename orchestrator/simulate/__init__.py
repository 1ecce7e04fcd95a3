"""The queue, the solver and the recovery ladder of production on a simulated clock and cluster."""
