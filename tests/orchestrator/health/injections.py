"""Made-up recordings of synchronous jobs, with one known fault each or uneven work that is nobody's fault.

A rank's compute has an offset of its own, noise that lasts (first-order autoregressive) and a part that all share
(sequence lengths of the step). What ranks wait follows from that, as in a real job: inside a pipeline whoever is
behind the slowest stage waits to receive and whoever is ahead of it to send, and a pipeline that is done early
waits for the others in the collective. So wall time is equal on all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.health.layout import PHASES, Floats, Layout
from orchestrator.health.verdict import Uneven

FORWARD_S, BACKWARD_S = 0.3, 0.6
TRANSFER_S = 0.03
COLLECTIVE_S = 0.05
MICRO_BATCHES = (2, 8)
"""With few of them the waits of a healthy pipeline are longer than its computing."""
OFFSET, NOISE, LASTS, SHARED = 0.008, 0.012, 0.4, 0.04
"""Shares of compute: between ranks, of a step, its correlation with the next, and of a step on all ranks. The first
two are those of the ByteDance traces (0.4 to 0.7 %) and as much again."""
STEPS = 120
SHAPES = ((1, 8), (2, 4), (4, 4), (4, 2), (3, 5))
"""Stages and replicas."""
RANK_FAULTS = ("constant", "onset", "transient", "periodic")
FAULTS = (*RANK_FAULTS, "data_loader", "link", "node")
UNEVEN = {"stage": Uneven.STAGE, "sequences": Uneven.ROTATING, "experts": Uneven.ROTATING}
"""Causes of uneven work, and what they are called."""


@dataclass(frozen=True, slots=True)
class Injection:
    """A recording and the truth about it. `ranks` empty: nobody is at fault."""

    kind: str
    factor: float
    ranks: frozenset[int]
    first: int
    last: int
    layout: Layout
    seconds: Floats
    """(steps, ranks, columns)"""


def injection(number: int, seed: int) -> Injection:
    """Faults of all kinds in turn, every fifth recording without any; the same for the same number and seed."""
    random = np.random.default_rng([seed, number])
    stages, replicas = SHAPES[number % len(SHAPES)]
    if number % 5 == 4:
        kind = ("none", *UNEVEN)[number // 5 % 4]
        stages, replicas = SHAPES[number // 20 % len(SHAPES)] if kind != "stage" else (4, 4)
        return _uneven(kind, _layout(stages, replicas), random)
    kind = FAULTS[(number - number // 5) % len(FAULTS)]
    if kind == "link":
        stages = max(2, stages)
    return _faulty(kind, stages, replicas, random)


def _layout(stages: int, replicas: int) -> Layout:
    """Two ranks a host, numbered along each pipeline."""
    ranks = range(stages * replicas)
    return Layout.of(
        tuple(ranks),
        stage={rank: rank % stages for rank in ranks},
        replica={rank: rank // stages for rank in ranks},
        node={rank: f"host{rank // 2}" for rank in ranks},
    )


def _faulty(kind: str, stages: int, replicas: int, random: np.random.Generator) -> Injection:
    rank = int(random.integers(stages * replicas))
    ranks = {rank}
    if kind == "node":
        rank = min(rank, stages * replicas // 2 * 2 - 1)
        ranks = {rank, rank ^ 1}
    layout = _layout(stages, replicas)
    factor = 1.4 if kind == "periodic" else float(random.choice([1.10, 1.25]))
    first, last = (
        (0, STEPS - 1) if kind in ("constant", "periodic") else (int(random.integers(20, 70)), STEPS - 1)
    )
    if kind in ("transient", "data_loader", "link"):
        last = first + int(random.integers(24, 48))
    slow = np.zeros(STEPS, dtype=np.bool_)
    slow[first : last + 1 : 8 if kind == "periodic" else 1] = True
    if kind == "periodic":
        last = int(np.flatnonzero(slow)[-1])
    compute = _compute(layout, random)
    usual = FORWARD_S + BACKWARD_S
    loading, moving = np.zeros(compute.shape), np.zeros(compute.shape)
    if kind == "link":
        factor = 1.25
        rank = rank if rank % stages < stages - 1 else rank - 1
        ranks = {rank, rank + 1}
        moving[slow, rank] = (factor - 1) * usual
    elif kind == "data_loader":  # only the first stage reads data
        factor, rank = 1.25, rank - rank % stages
        ranks = {rank}
        loading[slow, rank] = (factor - 1) * usual
    else:
        for one in ranks:
            compute[slow, one] *= factor
    return Injection(
        kind,
        factor,
        frozenset(ranks),
        first,
        last,
        layout,
        _recorded(layout, compute, loading, moving, random),
    )


def _uneven(kind: str, layout: Layout, random: np.random.Generator) -> Injection:
    compute = _compute(layout, random)
    stage, replica = np.array(layout.stage), np.array(layout.replica)
    if kind == "stage":  # the last one has the head of the model
        compute[:, stage == stage.max()] *= 1.3
    for step in range(STEPS):
        if kind == "sequences" and step % 3 == 0:  # one replica has long sequences
            compute[step, replica == random.integers(replica.max() + 1)] *= 1.4
        if kind == "experts" and step % 2 == 0:  # the experts of another rank are asked each time
            compute[step, random.integers(len(layout))] *= 1.3
    nothing = np.zeros(compute.shape)
    return Injection(
        kind, 1.0, frozenset(), 0, STEPS - 1, layout, _recorded(layout, compute, nothing, nothing, random)
    )


def _compute(layout: Layout, random: np.random.Generator) -> Floats:
    """(steps, ranks)"""
    noise = NOISE * random.standard_normal((STEPS, len(layout)))
    for step in range(1, STEPS):
        noise[step] = LASTS * noise[step - 1] + np.sqrt(1 - LASTS**2) * noise[step]
    offset = OFFSET * random.standard_normal(len(layout))
    shared = SHARED * random.standard_normal((STEPS, 1))
    return (FORWARD_S + BACKWARD_S) * (1 + offset) * (1 + noise) * (1 + shared)


def _recorded(
    layout: Layout, compute: Floats, loading: Floats, moving: Floats, random: np.random.Generator
) -> Floats:
    """What each rank would have measured. loading: seconds a rank takes outside computing; moving: seconds that a
    transfer to the next stage takes longer. All (steps, ranks)."""
    stages = max(layout.stage) + 1
    busy = (compute + loading).reshape(len(compute), -1, stages)
    extra = moving.reshape(busy.shape)
    longest = busy.max(axis=2, keepdims=True)
    # a pipeline is as fast as its slowest stage, and fills and drains with one micro-batch of each other one
    filling = (busy.sum(axis=2, keepdims=True) - longest) / random.choice(MICRO_BATCHES)
    late = extra.sum(axis=2, keepdims=True)
    length = (longest + filling + late)[:, :, 0]
    place = np.arange(stages)
    behind = place > busy.argmax(axis=2)[:, :, None]
    behind_link = place > extra.argmax(axis=2)[:, :, None]
    balance = longest - busy
    receive = filling + np.where(behind, 0.8, 0.2) * balance + np.where(behind_link, late, 0.0)
    send = np.where(behind, 0.2, 0.8) * balance + np.where(behind_link, 0.0, late)
    end = length.max(axis=1, keepdims=True)
    waited = np.broadcast_to((end - length)[:, :, None], busy.shape)
    found = np.zeros((*compute.shape, len(PHASES)))
    found[:, :, 0], found[:, :, 1] = compute / 3, compute * 2 / 3
    found[:, :, 2] = receive.reshape(compute.shape) + (TRANSFER_S if stages > 1 else 0)
    found[:, :, 3] = send.reshape(compute.shape) + (TRANSFER_S if stages > 1 else 0)
    found[:, :, 4] = waited.reshape(compute.shape) + COLLECTIVE_S
    found[:, :, 6] = end + COLLECTIVE_S + (2 * TRANSFER_S if stages > 1 else 0)
    return found
