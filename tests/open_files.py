"""Which processes of this machine have files open."""

from __future__ import annotations

from pathlib import Path


def processes_with_files_below(folder: Path) -> list[int]:
    """Ranks keep their logs open, which lie below the job's directory or the cluster's."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                links = [str(link.readlink()) for link in (entry / "fd").iterdir()]
            except OSError:
                continue
            if any(link.startswith(f"{folder}/") for link in links):
                found.append(int(entry.name))
    return found
