"""Parallelism: one file a mechanism, applied in one order by `parallelize`."""
