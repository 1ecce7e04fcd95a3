"""Who plays which part among the processes of a local cluster: found in /proc, no question asked of anybody."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from actors.processes import alive


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError):
        return 0


def variable(pid: int, name: str) -> str | None:
    """Of the environment that a process was started with."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    head = f"{name}=".encode()
    return next((entry[len(head) :].decode() for entry in entries if entry.startswith(head)), None)


def marked(name: str, value: str, folders: Iterable[str]) -> dict[int, str]:
    """Living processes that carry the variable, and Ray's with a file open in one of `folders`, with their titles: Ray
    writes the titles of its workers over their environment."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        pid, text = int(entry.name), title(int(entry.name))
        is_ours = _has_open(entry, folders) if text.startswith("ray::") else variable(pid, name) == value
        if is_ours and alive(pid):
            found[pid] = text
    return found


def _has_open(entry: Path, folders: Iterable[str]) -> bool:
    try:
        links = [str(link.readlink()) for link in (entry / "fd").iterdir()]
    except OSError:
        return False
    return any(link.startswith(f"{folder}/") for link in links for folder in folders)


@dataclass(frozen=True, slots=True)
class Cast:
    """Processes by what they are, each list in the order of their ids."""

    agents: list[int]
    supervisors: list[int]
    ranks: list[int]
    controllers: list[int]
    apis: list[int]
    heads: list[int]

    @classmethod
    def of(cls, titles: dict[int, str]) -> Cast:
        def titled(*beginnings: str) -> list[int]:
            return sorted(pid for pid, text in titles.items() if text.startswith(beginnings))

        agents = titled("ray::NodeAgent")
        zygotes = {pid for pid, text in titles.items() if "actors.zygote" in text and parent(pid) in agents}
        return cls(
            agents=agents,
            supervisors=titled("ray::Supervisor"),
            ranks=sorted(pid for pid in titles if parent(pid) in zygotes),
            controllers=sorted(pid for pid, text in titles.items() if text.endswith("-m atoll.controller")),
            apis=sorted(pid for pid, text in titles.items() if text.endswith("-m api")),
            heads=sorted(pid for pid, text in titles.items() if "gcs_server" in text.split(" ")[0]),
        )
