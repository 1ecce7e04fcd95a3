"""Made-up runs with known noise for tests: what is put in is what must come out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from orchestrator.health.layout import PHASES, WHOLE, Floats, Layout
from orchestrator.health.straggler import StragglerDetector
from orchestrator.health.verdict import Verdict

FWD, BWD, RECV, SEND, COLL, GC, WALL = range(len(PHASES))
NOISE = 0.005
"""Deviation of a step's compute, as in the ByteDance traces."""


def pipeline(stages: int, replicas: int, *, node: dict[int, str] | None = None) -> Layout:
    """rank = stage * replicas + replica"""
    ranks = range(stages * replicas)
    return Layout.of(
        tuple(ranks),
        stage={r: r // replicas for r in ranks},
        replica={r: r % replicas for r in ranks},
        node=node,
    )


def workers(count: int) -> Layout:
    return Layout.of(tuple(range(count)), columns=WHOLE)


def seconds(layout: Layout, steps: int, seed: int = 1) -> Floats:
    """(steps, ranks, columns): forward 0.3 s, backward 0.6 s, waits of 0.05 s, a step of 1.1 s; or 1 s where there
    are no phases."""
    noise = 1 + NOISE * np.random.default_rng(seed).standard_normal((steps, len(layout), len(layout.columns)))
    usual = np.array([0.3, 0.6, 0.05, 0.05, 0.05, 0.0, 1.1]) if layout.phased else np.array([1.0])
    found: Floats = noise * usual
    if layout.phased:
        found[:, :, WALL] = 1.1
    return found


def slower(found: Floats, place: int, extra_s: float, steps: slice | list[int]) -> Floats:
    """The rank computes longer, a third of it forward."""
    changed = found.copy()
    if found.shape[2] == 1:
        changed[steps, place, 0] += extra_s
    else:
        changed[steps, place, FWD] += extra_s / 3
        changed[steps, place, BWD] += extra_s * 2 / 3
    return changed


def verdict_of(layout: Layout, found: Floats, *, number: Callable[[int], int] = lambda i: i + 1) -> Verdict:
    """Steps are numbered from 1."""
    detector = StragglerDetector(layout)
    for i, step in enumerate(found):
        detector.observe(number(i), step)
    return detector.verdict()
