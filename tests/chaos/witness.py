"""What the ranks themselves wrote while they trained (`programs/chaos_model.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass of training through one block."""

    at: float
    """Seconds since 1970."""
    pid: int
    rank: int
    block: int
    gang: int
    """Port of the rendezvous, which tells one attempt from another."""


class Witness:
    """Reads the file as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.passes: list[Pass] = []
        self._read = 0

    def look(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode().splitlines():
            at, *numbers = line.split()
            self.passes.append(Pass(float(at), *map(int, numbers)))

    def steps(self, microbatches: int) -> int:
        """Steps that rank 0 has begun, over all attempts."""
        return -(-sum(1 for one in self.passes if one.rank == 0 and one.block == 0) // microbatches)

    def pid(self, rank: int) -> int | None:
        """The process that trained last as `rank`."""
        return next((one.pid for one in reversed(self.passes) if one.rank == rank), None)

    def pids(self) -> set[int]:
        return {one.pid for one in self.passes}

    def gangs(self) -> list[tuple[float, float, int]]:
        """First and last pass of each attempt that trained, whichever ranks told of them, in order of time."""
        times: dict[int, list[float]] = {}
        for one in self.passes:
            times.setdefault(one.gang, []).append(one.at)
        return sorted((min(at), max(at), gang) for gang, at in times.items())
