"""Snapshots in the memory of a node. Nothing here imports torch: a vault is a process of its own, and a small one."""

EXTRA = "vaults"
"""Under this key of `RankContext.extras` the ranks of an attempt are told of the vaults of their job."""
