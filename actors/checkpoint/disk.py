"""Durable file operations of a checkpoint: hash, write, sync, remove."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import threading
from collections import deque
from pathlib import Path

LASTING = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
)
"""Errors that waiting does not mend, other than a full disk or a server that is away."""


def never_writable(directory: Path) -> str | None:
    """Makes the directory; why no file can be made in it, now and later. None when one can, or may at another time."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return None
    except OSError as error:
        return error.strerror if error.errno in LASTING else None


def hash_file(path: Path) -> tuple[int, str]:
    """(bytes, sha256) of a file, read in one pass with constant memory."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()


def sync_directory(path: Path) -> None:
    """Makes the names in `path` durable (POSIX: a new name survives a crash only after this)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Writes `path` aside, syncs it, renames it into place and syncs the directory."""
    aside = path.with_name(path.name + ".partial")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    sync_directory(path.parent)


class Remover:
    """Removes directories one after the other in a thread that nobody has to wait for: on slow storage a large one
    takes minutes. What is left when the process ends is for the next attempt to remove."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Path] = deque()
        self._thread: threading.Thread | None = None

    def remove(self, path: Path) -> None:
        """Returns at once."""
        with self._lock:
            self._waiting.append(path)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="removal", daemon=True)
                self._thread.start()

    def settle(self, patience_s: float) -> None:
        """Waits until nothing is left to remove, at most `patience_s`."""
        thread = self._thread
        if thread is not None:
            thread.join(patience_s)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                path = self._waiting.popleft()
            remove_tree(path)


def remove_tree(path: Path) -> bool:
    """Removes a directory as far as the file system allows; True when it is gone."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    return not path.exists()
