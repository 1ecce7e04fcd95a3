"""Checkpoints: written aside, hashed, committed by a rename, verified before they are loaded."""

from actors.checkpoint.commit import SaveResult
from actors.checkpoint.restore import CheckpointLoadError, LoadResult, Skipped
from actors.checkpoint.store import CheckpointStore

__all__ = ["CheckpointLoadError", "CheckpointStore", "LoadResult", "SaveResult", "Skipped"]
