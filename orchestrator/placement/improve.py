"""From a placement by an order of axes to the cheapest one, where the job is small enough to search."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.placement.exact import cheapest
from orchestrator.placement.found import Judge
from orchestrator.placement.mapping import Mapped


def improved(judge: Judge, found: Mapped) -> Mapped:
    """`found`, or what a search made better. A job that names an order keeps it."""
    if judge.pricing is None or judge.rules.order is not None:
        return found
    return replace(found, best=cheapest(judge, found.best).best)
