"""The links of one process in a network namespace of our own: slowed, cut, reset. Needs root, iproute2 and HTB.

All nodes of a local cluster share the loopback interface, so a rank's links are told apart by its ports.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

SLOW_MBIT = 2
SLOW, CUT = "1:2", "1:3"
"""Classes of traffic: `CUT` lets next to nothing through, and what waits there is dropped."""
_numbers = itertools.count(10)
"""Priorities of filters: each fault has its own, by which it is undone."""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def prepare() -> None:
    """Classes on the loopback interface of this namespace; all traffic goes unhindered at first."""
    lo = ("dev", "lo")
    _run("tc", "qdisc", "replace", *lo, "root", "handle", "1:", "htb", "default", "1")
    for name, rate in (("1:1", "100gbit"), (SLOW, f"{SLOW_MBIT}mbit"), (CUT, "8bit")):
        _run("tc", "class", "replace", *lo, "parent", "1:", "classid", name, "htb", "rate", rate)
    _run("tc", "qdisc", "replace", *lo, "parent", CUT, "pfifo", "limit", "1")


def ports_of(pid: int) -> set[int]:
    """Local ports of the TCP connections that the process has open over IPv4."""
    try:
        opened = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        return set()
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    established = [row for row in rows if row[3] == "01"]
    return {int(row[1].split(":")[1], 16) for row in established if f"socket:[{row[9]}]" in opened}


def shape(ports: Iterable[int], *, cut: bool) -> Callable[[], None]:
    """Slows the traffic of these ports down, or cuts it off, in both directions; what undoes it."""
    number = str(next(_numbers))
    root = ("dev", "lo", "parent", "1:", "protocol", "ip", "prio", number)
    for port in ports:
        for end in ("sport", "dport"):
            match = ("u32", "match", "ip", end, str(port), "0xffff")
            _run("tc", "filter", "add", *root, *match, "flowid", CUT if cut else SLOW)
    return lambda: _run("tc", "filter", "del", *root)


def reset(ports: Iterable[int]) -> None:
    """Aborts the connections of these ports at both ends."""
    for port in ports:
        subprocess.run(
            ["ss", "-K", "state", "established", f"sport = :{port}"], capture_output=True, check=False
        )
