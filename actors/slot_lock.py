"""One rank at a time on an accelerator, by a lock of the kernel that lasts as long as any process of the rank.

Ray may call a slot free while the last rank on it is still dying. The lock file's descriptor is inherited by what the
rank forks, so the next rank begins when the last process of the one before is gone, not when somebody says so.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path


def acquire(key: str) -> int:
    """Waits for the slot named `key` (unique on this machine: GPU UUID, or Ray node id and index) and returns the
    descriptor that holds it until the process ends."""
    directory = Path(tempfile.gettempdir()) / f"atoll-slots-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(directory / key, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        print(f"slot {key} is still held by process {holder}; waiting for its end", flush=True)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor
