"""Memory that processes hand to one another: an anonymous file (memfd_create(2)), sealed once it is written.

Such a file has no name, so nothing is left of it when the last process that holds it is gone, however it ended, and it
is not bounded by the size of /dev/shm, which is 64 MB in a container unless somebody thought of it. A sealed one can be
changed by nobody any more, not even by the rank that wrote it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_GROUP = Path("/sys/fs/cgroup")


def new_file(size: int) -> int:
    """The descriptor of an anonymous file of `size` bytes that may be sealed, its pages allocated. OSError (ENOMEM)."""
    descriptor = os.memfd_create("atoll-snapshot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        if size:
            os.posix_fallocate(descriptor, 0, size)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def seal(descriptor: int) -> None:
    """No byte of the file changes from here on. OSError (EBUSY) while it is mapped for writing."""
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)


def is_sealed(descriptor: int) -> bool:
    return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS


def digest(descriptor: int) -> str:
    """SHA-256 of the whole file."""
    with mapped(descriptor) as view:
        return hashlib.sha256(view).hexdigest()


@contextlib.contextmanager
def mapped(descriptor: int, *, writable: bool = False) -> Iterator[mmap.mmap]:
    """The file as memory. Read alone it is mapped privately: kernels before 6.7 refuse to share a sealed file."""
    flags, protection = (
        (mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        if writable
        else (mmap.MAP_PRIVATE, mmap.PROT_READ)
    )
    with mmap.mmap(descriptor, os.fstat(descriptor).st_size, flags, protection) as view:
        yield view


def of_this_node() -> tuple[int, int]:
    """(available, whole) memory of this node, bytes: what the kernel says, or the control group where that is less."""
    told = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free, whole = (int(told[key].split()[0]) * 1024 for key in ("MemAvailable", "MemTotal"))
    with contextlib.suppress(OSError, ValueError):
        limit = int((_GROUP / "memory.max").read_text())  # "max" is no number: no limit
        used = int((_GROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
        used -= int(stat.get("inactive_file", 0))  # page cache that the kernel gives back when asked
        if limit < whole:
            free, whole = min(free, limit - used), limit
    return free, whole
