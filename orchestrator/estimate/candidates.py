"""The plans that a search looks at: every combination that the rules of job files can take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

from orchestrator.estimate.network import Network
from orchestrator.spec.job import JobSpec
from orchestrator.spec.sections import (
    ContextMethod,
    ModelSpec,
    ParallelismSpec,
    PipelineSchedule,
    PlacementSpec,
    Tier,
)

Recompute = Literal["none", "selective", "elementwise", "full"]
MOST_VIRTUAL = 8
"""Stages a rank; more make messages small without much less bubble."""
LEAST_POSITIONS = 1024
"""Of a context rank: fewer leave products too small."""
MOST_TENSOR = 64


@dataclass(frozen=True, slots=True)
class Candidate:
    plan: ParallelismSpec
    recompute: Recompute


@dataclass(frozen=True, slots=True)
class Degrees:
    tp: int
    pp: int
    cp: int
    dp: int


def candidates(spec: JobSpec, ranks: int, network: Network) -> Iterator[Candidate]:
    """GPipe is left out: 1F1B has its bubble and less memory. So is ZeRO 2 and 3 with a pipeline, which keep what
    stage 1 keeps."""
    for degrees in _degrees(spec, ranks, network):
        for microbatches in divisors(spec.training.global_batch // degrees.dp):
            for ep, zero in product(_expert_degrees(spec.model, degrees), _zero_stages(spec, degrees)):
                for schedule, virtual in _schedules(spec, degrees, microbatches):
                    plan = spec.parallelism.model_copy(
                        update={
                            "tp": degrees.tp,
                            "pp": degrees.pp,
                            "cp": degrees.cp,
                            "dp": degrees.dp,
                            "ep": ep,
                            "zero": zero,
                            "dp_shard": None,
                            "reshard_after_forward": True,
                            "sequence": True,
                            "schedule": schedule,
                            "microbatches": microbatches,
                            "virtual_stages": virtual,
                            "layers_per_stage": None,
                        }
                    )
                    for recompute in _recomputes(spec, schedule, degrees, zero):
                        yield Candidate(plan, recompute)


def divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _degrees(spec: JobSpec, ranks: int, network: Network) -> Iterator[Degrees]:
    model, positions = spec.model, spec.training.sequence_length
    for tp in divisors(ranks):
        if not _tensor_splits(spec, tp) or tp > _room(spec.placement, "tp", network):
            continue
        for pp in divisors(ranks // tp):
            if pp > model.layers or (pp > 1 and model.tied_embeddings):
                continue
            for cp in divisors(ranks // tp // pp):
                dp = ranks // tp // pp // cp
                whole = positions % (2 * cp * tp) == 0 and positions // cp >= LEAST_POSITIONS
                if (cp > 1 and not whole) or spec.training.global_batch % dp:
                    continue
                if (
                    cp > 1
                    and spec.parallelism.context is ContextMethod.ULYSSES
                    and model.kv_heads % (tp * cp)
                ):
                    continue
                if pp > 1 and tp * cp * pp > _room(spec.placement, "pp", network):
                    continue
                yield Degrees(tp, pp, cp, dp)


def _tensor_splits(spec: JobSpec, tp: int) -> bool:
    model = spec.model
    sizes = [model.heads, model.kv_heads, spec.training.sequence_length]
    if model.moe is None or model.moe.dense_layers:
        sizes.append(model.ffn_hidden)
    if tp > 1 and spec.training.optimizer.name == "muon":
        return False
    return tp <= MOST_TENSOR and not any(size % tp for size in sizes)


def _room(rules: PlacementSpec, axis: str, network: Network) -> int:
    """Ranks that a required rule of the axis lets be together; the placement itself is asked later."""
    rule = getattr(rules, axis)
    if rule.mode != "required" or rule.tier is Tier.ANY:
        return network.size
    return next((hop.size for hop in network.hops if hop.tier is rule.tier), network.size)


def _expert_degrees(model: ModelSpec, degrees: Degrees) -> list[int]:
    if model.moe is None:
        return [1]
    group = degrees.dp * degrees.cp * degrees.tp
    return [ep for ep in divisors(model.moe.experts) if group % ep == 0]


def _zero_stages(spec: JobSpec, degrees: Degrees) -> tuple[int, ...]:
    if degrees.dp * degrees.cp == 1 or spec.training.optimizer.name == "muon":
        return (0,)
    return (0, 1, 2, 3) if degrees.pp == 1 else (0, 1)


def _schedules(spec: JobSpec, degrees: Degrees, microbatches: int) -> Iterator[tuple[PipelineSchedule, int]]:
    pp = degrees.pp
    if pp == 1:
        yield PipelineSchedule.ONE_F_ONE_B, 1
        return
    if microbatches < pp:  # most of a rank's time would be idle
        return
    layers = spec.model.layers
    yield PipelineSchedule.ONE_F_ONE_B, 1
    if microbatches % (microbatches // pp) == 0:
        yield PipelineSchedule.ZERO_BUBBLE, 1
        for virtual in range(2, MOST_VIRTUAL + 1):
            if pp * virtual <= layers:
                yield PipelineSchedule.INTERLEAVED_1F1B, virtual
    if 2 * pp <= layers:
        yield PipelineSchedule.ZBV, 2


def _recomputes(
    spec: JobSpec, schedule: PipelineSchedule, degrees: Degrees, zero: int
) -> tuple[Recompute, ...]:
    split = degrees.pp > 1 and schedule in (PipelineSchedule.ZERO_BUBBLE, PipelineSchedule.ZBV)
    if split or spec.training.compile:
        return ("none",)
    if spec.training.offload.activations or (spec.model.moe is not None and zero > 0):
        return ("none", "selective", "full")
    return ("none", "selective", "elementwise", "full")
