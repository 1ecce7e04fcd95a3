"""Where every rank runs, why there, and the proof that it really does."""
