"""What a job sends in a step, as the cost of a placement needs it: groups, bytes, messages, what they hide behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from orchestrator.estimate.flops import flops_per_token
from orchestrator.estimate.hardware import peak_flops
from orchestrator.estimate.share import Stage
from orchestrator.estimate.stages import stages_of
from orchestrator.estimate.traffic import pipeline_traffic, step_traffic
from orchestrator.placement.mesh import Mesh, Ranks
from orchestrator.spec.job import JobSpec
from orchestrator.spec.sections import ContextMethod, ParallelismSpec, Precision

EFFICIENCY = 0.5
"""Share of an accelerator's peak that a step's compute reaches, for the time that communication hides behind. Published
large runs lie between 0.4 and 0.55 (Narayanan et al. 2021, table 1: 44 to 52 %)."""


FLAT_RINGS = frozenset({"cpu"})
"""Accelerator types whose collectives are gloo's (`actors/training/device.py`); its all-reduce and all-gather know no
topology: one ring in the order of the group's ranks (gloo/allreduce.cc, gloo/allgather.cc)."""


class Pattern(Enum):
    """Who sends to whom in a group."""

    RING = auto()
    """Each rank to the next, the last to the first: all-reduce, all-gather, reduce-scatter. By stages, tier by tier,
    where the group lies evenly in them."""
    FLAT_RING = auto()
    """The same without stages: always one ring in the order of the ranks, as gloo has it."""
    CHAIN = auto()
    """Each rank to the next and to the one before, the ends to one alone: activations and their gradients."""
    EXCHANGE = auto()
    """Each rank to every other, in equal parts: all-to-all."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Traffic of one axis in one step."""

    axis: str
    """`tp`, `cp`, `ep`, `pp`, `dp`, or `shard`: what ZeRO gathers and scatters."""
    pattern: Pattern
    size: int
    """Ranks of a group."""
    bytes: float
    """That one rank sends in a step; of a chain: to one neighbour."""
    messages: float
    """That a rank sends one after the other in a step, each of which waits for the latency of the tier."""
    overlapped: bool = False
    """Sent while backward computes."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A job's traffic and the compute it can hide behind."""

    parallelism: ParallelismSpec
    demands: tuple[Demand, ...]
    backward_flops: float = 0.0
    """FLOPs of one rank in the backward pass of a step."""
    precision: Precision = Precision.FP32

    def on(self, accelerator: str | None) -> Workload:
        """The same job on such accelerators, whose library says how rings run."""
        if accelerator not in FLAT_RINGS:
            return self
        flat = [
            replace(demand, pattern=Pattern.FLAT_RING) if demand.pattern is Pattern.RING else demand
            for demand in self.demands
        ]
        return replace(self, demands=tuple(flat))

    def hidden_s(self, accelerator: str | None) -> float:
        """Seconds of backward on such an accelerator; 0 when its speed is unknown: then nothing is hidden."""
        peak = peak_flops(accelerator, self.precision)
        return 0.0 if peak is None else self.backward_flops / (peak * EFFICIENCY)


def groups_of(demand: Demand, mesh: Mesh, parallelism: ParallelismSpec) -> Ranks:
    """Ranks of each group, (groups, size), in the order in which the group's ranks are numbered."""
    if demand.axis == "ep":
        return mesh.neighbours(demand.size)
    if demand.axis == "shard":
        return mesh.neighbours(demand.size, of=("cp", "dp"))
    if demand.axis == "dp":  # replicas of a shard
        sharing = parallelism.shards * mesh.degree("cp") if parallelism.zero else 1
        every = mesh.members(("cp", "dp"))
        return every.reshape(len(every), -1, sharing).transpose(0, 2, 1).reshape(-1, demand.size)
    return mesh.members((demand.axis,))


def workload_of(spec: JobSpec) -> Workload | None:
    """The job's traffic; None for an imported model, of which nobody knows it before it runs."""
    if spec.model.imported:
        return None
    plan = spec.parallelism
    sent = _sent(spec)
    layers = -(-spec.model.layers // plan.pp)
    demands = []
    for axis, size in _sizes(plan).items():
        if size > 1 and sent.get(axis, 0.0) > 0:
            demands.append(_demand(spec, axis, size, sent[axis], layers))
    tokens = spec.training.global_batch * spec.training.sequence_length / plan.world_size
    forward_and_backward = flops_per_token(
        spec.model, vocab_size=spec.data.vocab_size, positions=spec.training.sequence_length
    )
    return Workload(plan, tuple(demands), forward_and_backward * tokens * 2 / 3, spec.training.precision)


def _sizes(plan: ParallelismSpec) -> dict[str, int]:
    sharing = plan.shards * plan.cp if plan.zero else 1
    return {
        "tp": plan.tp,
        "cp": plan.cp,
        "ep": plan.ep,
        "pp": plan.pp,
        "dp": plan.dp * plan.cp // sharing,
        "shard": sharing,
    }


def _sent(spec: JobSpec) -> dict[str, float]:
    """Bytes by axis of the rank that sends most on it, layers dealt out evenly; of `pp` those over one boundary."""
    plan, model = spec.parallelism, spec.model
    stages = plan.stages
    bounds = [round(i * model.layers / stages) for i in range(stages + 1)]
    most: dict[str, float] = {}
    for rank in range(plan.pp):
        held = [Stage(range(bounds[i], bounds[i + 1]), i, stages) for i in stages_of(plan, rank)]
        for axis, sent in step_traffic(spec, held).items():
            most[axis] = max(most.get(axis, 0.0), sent)
    if plan.pp > 1:
        most["pp"] = plan.virtual_stages * pipeline_traffic(spec, [Stage(range(0), 0, stages)])
    return most


def _demand(spec: JobSpec, axis: str, size: int, sent: float, layers: int) -> Demand:
    """`layers`: of one rank. Messages count the hops of the algorithm, a collective at a time."""
    plan, rounds = spec.parallelism, spec.parallelism.microbatches
    match axis:
        case "tp":
            return Demand(axis, Pattern.RING, size, sent, 4.0 * rounds * layers * 2 * (size - 1))
        case "cp":
            trades = plan.context is ContextMethod.ULYSSES
            pattern = Pattern.EXCHANGE if trades else Pattern.RING
            return Demand(axis, pattern, size, sent, rounds * layers * (8.0 if trades else 2.0 * (size - 1)))
        case "ep":
            return Demand(axis, Pattern.EXCHANGE, size, sent, 4.0 * rounds * layers)
        case "pp":
            return Demand(axis, Pattern.CHAIN, size, sent, 2.0 * rounds * plan.virtual_stages)
        case "dp":
            return Demand(axis, Pattern.RING, size, sent, 2.0 * layers * (size - 1), overlapped=True)
        case _:
            return Demand(axis, Pattern.RING, size, sent, 3.0 * layers * (size - 1), overlapped=True)
