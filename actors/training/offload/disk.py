"""Optimizer states in a memory-mapped file: the kernel pages them in and out around the step (ZeRO-Infinity,
Rajbhandari et al. 2021, keeps them on NVMe likewise).

The file of a rank gets its whole size first, so that a full disk is told at once and is no bus error in mid-run. It has
a name only while it is made: once mapped, the kernel removes it with the process, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import shutil
import tempfile
from pathlib import Path

import torch
from torch import Tensor

PREFIX, SUFFIX = "atoll-optimizer-", ".states"
ALIGNMENT_BYTES = 64


class OffloadDirectoryError(RuntimeError):
    """The directory for offloaded states cannot hold them."""


def aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class DiskStates:
    """`size_bytes` of zeros in a file below `directory`, handed out piece by piece."""

    def __init__(self, directory: Path, *, size_bytes: int, rank: int) -> None:
        """OffloadDirectoryError when the directory cannot be written or has too little room."""
        self._used_bytes = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            remove_stale(directory)
            self._map = _map_unnamed_file(directory, size_bytes, rank) if size_bytes else None
        except OSError as error:
            with contextlib.suppress(OSError):
                free = f"; {shutil.disk_usage(directory).free / 1e6:.1f} MB are free"
                raise OffloadDirectoryError(_told(directory, size_bytes, rank, error) + free) from error
            raise OffloadDirectoryError(_told(directory, size_bytes, rank, error)) from error

    def zeros(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """The next piece. It lives as long as the tensor does."""
        if shape.numel() == 0 or self._map is None:
            return torch.zeros(shape, dtype=dtype)
        start, size = self._used_bytes, shape.numel() * dtype.itemsize
        self._used_bytes += aligned(size)
        assert self._used_bytes <= len(self._map), "more states than were announced"
        return torch.frombuffer(self._map, dtype=dtype, count=shape.numel(), offset=start).view(shape)


def _told(directory: Path, size_bytes: int, rank: int, error: OSError) -> str:
    return (
        f"training.offload.directory: {directory}: the optimizer states of rank {rank} need "
        f"{size_bytes / 1e6:.1f} MB: {error.strerror or error}"
    )


def _map_unnamed_file(directory: Path, size_bytes: int, rank: int) -> mmap.mmap:
    descriptor, name = tempfile.mkstemp(prefix=f"{PREFIX}{rank:06d}-", suffix=SUFFIX, dir=directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # says to `remove_stale` that somebody is here
        os.posix_fallocate(descriptor, 0, size_bytes)
        return mmap.mmap(descriptor, size_bytes)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        os.close(descriptor)


def remove_stale(directory: Path) -> None:
    """Removes files whose maker died before it could take their name away: nobody holds their lock."""
    for path in directory.glob(f"{PREFIX}*{SUFFIX}"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)
