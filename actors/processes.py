"""Processes by id: whether one lives, signalling it, and the kernel's tie between a parent's and a child's life."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def alive(pid: int) -> bool:
    """True while the process runs; a zombie, which holds nothing but its exit code, does not count."""
    return state(pid) not in ("", "Z", "X")


def state(pid: int) -> str:
    """The kernel's letter for what the main thread does: R runs, S sleeps, D waits uninterruptibly, T is stopped, Z has
    ended. Empty when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rsplit(")", 1)[1].split()[0]


def signal_quietly(pid: int, number: int) -> None:
    """Sends a signal; a process that is gone is no error."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def signal_group(group: int, number: signal.Signals) -> None:
    """Sends a signal to a whole process group; one that is gone is no error."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Asks the kernel to send `number` to this process when the thread that started it ends.

    `parent` is the id of the process expected as parent: if that one died before the request was made, nobody would
    ever send the signal, so this process ends itself.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) refused")
    if os.getppid() != parent:
        os._exit(1)
