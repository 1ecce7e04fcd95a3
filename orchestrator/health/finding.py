"""What is said of a running job: a verdict's parts in one form, with the names of nodes and a sentence for people."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from orchestrator.health.verdict import Imbalance, Kind, Straggler, Uneven, Verdict, Watch

STRAGGLERS_KEPT = 100
"""Findings of an attempt that are told, the newest; imbalances and what is only watched are few."""
WATCHED_KEPT = 32
RANKS_NAMED = 4


class Category(StrEnum):
    STRAGGLER = "straggler"
    """A rank, node or link is slow."""
    IMBALANCE = "imbalance"
    """Work is not evenly spread: no machine's fault."""
    WATCH = "watch"
    """Too little or too short to be called slow."""


class Clock(StrEnum):
    """By which time computing is judged."""

    WALL = "wall"
    CPU = "cpu"
    """Ranks share cores, so the wall clock tells who was scheduled."""
    DEVICE = "device"
    """The accelerator's own."""


@dataclass(frozen=True, slots=True)
class Finding:
    attempt: int
    category: Category
    kind: str
    """`Kind`, `Uneven` or `Watched` value."""
    subject: str
    """What it is about: `rank 5`, `node n3`, `link 2-6`, `stage 3`. With the category and `from_step` it tells the
    findings of an attempt apart."""
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    """Nodes of the ranks, each once."""
    from_step: int
    to_step: int
    factor: float
    cost_s: float
    """What the job lost to it so far, by its clock."""
    step_cost_s: float
    """The same over the measured steps from first to last."""
    confidence: float
    ongoing: bool
    clock: Clock
    sentence: str

    @property
    def key(self) -> tuple[str, str, int]:
        return self.category.value, self.subject, self.from_step

    def to_json(self) -> dict[str, Any]:
        plain = {
            name: round(value, 6) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }
        return {**plain, "ranks": list(self.ranks), "nodes": list(self.nodes)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Finding:
        listed = {"ranks": tuple(values["ranks"]), "nodes": tuple(values["nodes"])}
        named = {"category": Category(values["category"]), "clock": Clock(values["clock"])}
        return cls(**{**values, **listed, **named})


def findings(
    verdict: Verdict,
    *,
    attempt: int,
    clock: Clock,
    node_of: Mapping[int, str],
    steps_within: Callable[[int, int], int],
) -> tuple[Finding, ...]:
    """All of a verdict, stragglers first. `steps_within` counts the judged steps from one to another."""
    say = _Say(attempt, clock, node_of, steps_within)
    slow = sorted(verdict.stragglers, key=lambda one: (one.ongoing, one.to_step))[-STRAGGLERS_KEPT:]
    alone = [one for one in slow if one.kind is not Kind.NODE]
    on_nodes: dict[tuple[str, bool], list[Straggler]] = {}
    for one in slow:
        if one.kind is Kind.NODE and one.node is not None:
            on_nodes.setdefault((one.node, one.ongoing), []).append(one)
    watched = sorted(verdict.watch, key=lambda one: one.cost_s)[-WATCHED_KEPT:]
    return (
        *(say.straggler(one) for one in alone),
        *(say.node(name, together) for (name, _), together in on_nodes.items()),
        *(say.imbalance(one) for one in verdict.imbalance),
        *(say.watch(one) for one in watched),
    )


@dataclass(frozen=True, slots=True)
class _Say:
    attempt: int
    clock: Clock
    node_of: Mapping[int, str]
    steps_within: Callable[[int, int], int]

    def straggler(self, one: Straggler) -> Finding:
        ranks = (one.rank,) if one.peer is None else (one.rank, one.peer)
        subject = f"rank {one.rank}" if one.peer is None else f"link {one.rank}-{one.peer}"
        who = f"Rank {one.rank} on node {self.node_of[one.rank]} {one.reason}"
        if one.peer is not None:
            who = f"The link of {' and '.join(map(self._placed, ranks))} is slow: {one.reason}"
        return self._finding(one, Category.STRAGGLER, subject, ranks, who, one.confidence, one.ongoing)

    def node(self, name: str, together: Sequence[Straggler]) -> Finding:
        """All ranks of a node at once; the job waits for the slowest of them."""
        first = min(together, key=lambda one: one.from_step)
        factor = statistics.median(one.factor for one in together)
        who = f"Node {name} is slow: its {len(together)} ranks compute {factor:.2f} times as long as their peers"
        whole = Straggler(
            rank=first.rank,
            kind=Kind.NODE,
            from_step=first.from_step,
            to_step=max(one.to_step for one in together),
            factor=factor,
            cost_s=max(one.cost_s for one in together),
            confidence=statistics.median(one.confidence for one in together),
            detected_step=first.detected_step,
            reason=who,
        )
        ranks = tuple(sorted(one.rank for one in together))
        ongoing, confidence = first.ongoing, whole.confidence
        return self._finding(whole, Category.STRAGGLER, f"node {name}", ranks, who, confidence, ongoing)

    def imbalance(self, one: Imbalance) -> Finding:
        of_stage = one.kind is Uneven.STAGE
        subject = f"stage {one.stage}" if of_stage else f"{one.kind.value} ranks {_listed(one.ranks)}"
        who = one.reason[:1].upper() + one.reason[1:]
        return self._finding(one, Category.IMBALANCE, subject, one.ranks, who, 1.0, True)

    def watch(self, one: Watch) -> Finding:
        who = f"{self._placed(one.rank).capitalize()} {one.reason}"
        return self._finding(
            one, Category.WATCH, f"{one.kind.value} rank {one.rank}", (one.rank,), who, 1.0, False
        )

    def _finding(
        self,
        one: Straggler | Imbalance | Watch,
        category: Category,
        subject: str,
        ranks: tuple[int, ...],
        who: str,
        confidence: float,
        ongoing: bool,
    ) -> Finding:
        step_cost_s = one.cost_s / max(1, self.steps_within(one.from_step, one.to_step))
        when = f"since step {one.from_step}" if ongoing else f"from step {one.from_step} to {one.to_step}"
        if one.from_step == one.to_step:
            when = f"at step {one.from_step}"
        unit = "s of CPU time" if self.clock is Clock.CPU else "s"
        costs = f"{'costs' if ongoing else 'cost'} {step_cost_s:.3g} {unit} a step."
        is_slow = category is Category.STRAGGLER
        return Finding(
            attempt=self.attempt,
            category=category,
            kind=one.kind.value,
            subject=subject,
            ranks=ranks,
            nodes=tuple(dict.fromkeys(self.node_of[rank] for rank in ranks)),
            from_step=one.from_step,
            to_step=one.to_step,
            factor=one.factor,
            cost_s=one.cost_s,
            step_cost_s=step_cost_s,
            confidence=confidence,
            ongoing=ongoing,
            clock=self.clock,
            sentence=f"{who} {when}; {costs}" if is_slow else f"{who}; {when} it {costs}",
        )

    def _placed(self, rank: int) -> str:
        return f"rank {rank} on node {self.node_of[rank]}"


def _listed(ranks: Sequence[int]) -> str:
    if len(ranks) > RANKS_NAMED:
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks))
