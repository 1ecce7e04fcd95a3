"""What each project used lately: accelerators held, as a mean over the past that counts half after each half-life."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Accelerators that a project held from one time to another; seconds."""

    project: str
    size: int
    from_s: float
    to_s: float


def mean_use(spans: Iterable[Span], *, now_s: float, half_life_s: float) -> Mapping[str, float]:
    """Accelerators by project: the integral of size x 2^(-age / half-life) x ln 2 / half-life over the past. A project
    that has held `n` for ever has `n`."""
    used: defaultdict[str, float] = defaultdict(float)
    for span in spans:
        older = 0.5 ** ((now_s - span.from_s) / half_life_s)
        newer = 0.5 ** (max(0.0, now_s - span.to_s) / half_life_s)
        used[span.project] += span.size * (newer - older)
    return used


class UseMeter:
    """The same mean, carried on from change to change instead of summed over the past."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._mean: dict[str, tuple[float, float]] = {}
        """Project -> (time, mean at that time)."""
        self.held: defaultdict[str, int] = defaultdict(int)
        """Accelerators held now."""

    def change(self, project: str, by: int, now_s: float) -> None:
        """`by` accelerators more (or fewer) are held from now on."""
        self._mean[project] = (now_s, self.mean(project, now_s))
        self.held[project] += by

    def mean(self, project: str, now_s: float) -> float:
        at_s, mean = self._mean.get(project, (now_s, 0.0))
        left: float = 0.5 ** ((now_s - at_s) / self._half_life_s)
        return mean * left + self.held[project] * (1.0 - left)

    def means(self, now_s: float) -> Mapping[str, float]:
        return {project: self.mean(project, now_s) for project in self._mean}
