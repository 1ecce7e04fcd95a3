"""Placement and refusal: the two answers of the solver, as values."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.placement.priced import Cost
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Slot


@dataclass(frozen=True, slots=True)
class AxisOutcome:
    """How one axis came out: the worst tier over its groups, and the groups outside the asked tier."""

    axis: str
    asked: Tier
    mode: str
    groups: int
    widest: Tier
    """Widest tier any group of this axis spans; `any` when a group shares no known domain."""
    outside: int
    """Groups that do not fit in one domain of the asked tier; 0 for every `required` axis."""


@dataclass(frozen=True, slots=True)
class Placement:
    slots: tuple[Slot, ...]
    """Slot of each rank, by rank."""
    axes: tuple[AxisOutcome, ...]
    explanation: tuple[str, ...] = ()
    """Sentences for people: why here."""
    cpus_per_rank: float = 0.0
    """CPUs of its node that each rank takes."""
    cost: Cost | None = None
    """Seconds of communication in a step; None where the job's traffic is not known."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing was placed."""

    message: str
    """What is missing and where, one sentence: `leaf l0: 2 free, 4 needed for one pipeline`."""
    details: tuple[str, ...] = ()
    """One sentence a domain looked at, nearest miss first."""
    ever: bool = True
    """False when the job cannot fit even on an empty fabric."""
    changes: tuple[str, ...] = ()
    """One sentence for each single change of the job with which it would fit now, smallest first."""
