"""What is said about a job's ranks: the findings and their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    CONSTANT = "constant"
    """Slow from the first step to the last."""
    ONSET = "onset"
    """Became slow and still is."""
    TRANSIENT = "transient"
    """Was slow and recovered."""
    PERIODIC = "periodic"
    """Slow in single steps again and again."""
    NODE = "node"
    """One of all ranks of a node, slow at the same time."""
    DATA_LOADER = "data_loader"
    """Late although it computes as fast as its peers and waits less: its time goes by outside forward and
    backward."""
    GARBAGE = "gc"
    """Late by garbage collection."""
    LINK = "link"
    """Slow in moving data, not in computing."""


class Uneven(StrEnum):
    STAGE = "stage"
    """A pipeline stage has more work than the others, on every replica."""
    REPLICA = "replica"
    """All stages of one replica take longer at the same time: it is given more work, such as longer sequences."""
    ROTATING = "rotating"
    """Another rank is the slowest each time: sequence lengths or expert load."""


class Watched(StrEnum):
    TREND = "trend"
    """Lasting, but below the threshold."""
    SPIKE = "spike"
    """One step twice as long or longer."""


@dataclass(frozen=True, slots=True)
class Straggler:
    rank: int
    kind: Kind
    from_step: int
    to_step: int
    factor: float
    """Its time over its peers', in the slow steps."""
    cost_s: float
    """What the slow steps took longer than peers', summed: what the job loses to it when it is the slowest."""
    confidence: float
    """0 to 1."""
    detected_step: int
    """Where a live detector says so first."""
    reason: str
    node: str | None = None
    peer: int | None = None
    """The other end of a slow link, where it is known."""
    period: int | None = None
    """Measured steps from one slow one to the next."""
    ongoing: bool = False
    """It has not recovered up to the last step."""


@dataclass(frozen=True, slots=True)
class Imbalance:
    kind: Uneven
    ranks: tuple[int, ...]
    stage: int | None
    from_step: int
    to_step: int
    factor: float
    cost_s: float
    """Stage: what even stages would save. Replica, rotating: what the longest took longer than the median, summed."""
    reason: str


@dataclass(frozen=True, slots=True)
class Watch:
    rank: int
    kind: Watched
    from_step: int
    to_step: int
    factor: float
    cost_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    stragglers: tuple[Straggler, ...]
    imbalance: tuple[Imbalance, ...]
    watch: tuple[Watch, ...]
    steps: int
    ranks: int

    @property
    def healthy(self) -> bool:
        """No rank, node or link is slow. Uneven work is nobody's fault."""
        return not self.stragglers

    def to_json(self) -> dict[str, Any]:
        return {
            "stragglers": [_plain(asdict(found)) for found in self.stragglers],
            "imbalance": [_plain(asdict(found)) for found in self.imbalance],
            "healthy": self.healthy,
            "watch": [_plain(asdict(found)) for found in self.watch],
            "steps": self.steps,
            "ranks": self.ranks,
        }


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers to four places; what is not known is left out."""
    return {
        key: round(value, 4) if isinstance(value, float) else value
        for key, value in found.items()
        if value is not None
    }
