"""What of an attempt's findings is new: a rank that became slow, one that recovered, work found uneven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.health.finding import Category, Finding

MOST = 200
"""Pieces of news of one attempt: an uneasy job must not fill its history. Findings themselves go on."""
IMBALANCE_STEPS = 32
"""Steps that an imbalance must have lasted to be news."""


class Turn(StrEnum):
    FOUND = "found"
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True)
class News:
    turn: Turn
    finding: Finding
    sentence: str


class NewsDesk:
    """Of one attempt."""

    def __init__(self) -> None:
        self._slow: dict[str, Finding] = {}
        """What was told to be slow and has not recovered, by subject."""
        self._told: set[tuple[str, str, int]] = set()
        self._count = 0

    def news(self, findings: Sequence[Finding]) -> list[News]:
        """What is to be told of `findings`, all of the attempt, beside what was told before."""
        slow = [one for one in findings if one.category is Category.STRAGGLER]
        fresh = [*self._recovered(slow), *self._found(slow), *self._uneven(findings)]
        fresh = fresh[: MOST - self._count]
        self._count += len(fresh)
        return fresh

    def _found(self, slow: Sequence[Finding]) -> list[News]:
        fresh = []
        for one in slow:
            if one.ongoing and one.subject in self._slow:
                self._slow[one.subject] = one
                self._told.add(one.key)
                continue
            if one.key in self._told:
                continue
            self._told.add(one.key)
            if one.ongoing:
                self._slow[one.subject] = one
            fresh.append(News(Turn.FOUND, one, one.sentence))
        return fresh

    def _recovered(self, slow: Sequence[Finding]) -> list[News]:
        going_on = {one.subject for one in slow if one.ongoing}
        blamed = {rank for one in slow if one.ongoing for rank in one.ranks}
        fresh = []
        for subject in list(self._slow.keys() - going_on):
            was = self._slow.pop(subject)
            ended = [one for one in slow if one.subject == subject and not one.ongoing]
            last = max(ended, key=lambda one: one.to_step, default=None)
            if last is not None:
                self._told.add(last.key)
            elif set(was.ranks) <= blamed:
                continue  # the same slowness has another name now: that of a node
            fresh.append(News(Turn.RECOVERED, last or was, _recovery(last or was)))
        return fresh

    def _uneven(self, findings: Sequence[Finding]) -> list[News]:
        fresh = []
        for one in findings:
            if one.category is not Category.IMBALANCE or one.to_step - one.from_step < IMBALANCE_STEPS:
                continue
            if one.key not in self._told:
                self._told.add(one.key)
                fresh.append(News(Turn.FOUND, one, one.sentence))
        return fresh


def _recovery(one: Finding) -> str:
    who = one.subject[:1].upper() + one.subject[1:]
    on = f" on node {one.nodes[0]}" if one.subject.startswith("rank ") and one.nodes else ""
    return (
        f"{who}{on} is no longer slow after step {one.to_step}; it cost {one.cost_s:.3g} s "
        f"from step {one.from_step} on."
    )
