"""What a plan costs on a fabric, and which would be fastest: the one way in for the command line and the API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.estimate.network import UNNAMED, device_of, network_of
from orchestrator.estimate.planner import plan_cost, search
from orchestrator.estimate.report import cost_report, search_report
from orchestrator.spec.job import JobSpec
from orchestrator.spec.rules import MAX_RANKS
from orchestrator.spec.sections import ResourcesSpec
from orchestrator.topology.fabric import Fabric

LEAST = 1e-6
"""Of seconds and hours that may be asked with, and the most of tokens, seconds and hours: far beyond any run, and small
enough that whole steps can be counted."""
MOST_TOKENS = 1e18
MOST_STALL_S = 1e6
MOST_GPU_HOURS = 1e12


@dataclass(frozen=True)
class Question:
    auto: bool = False
    ranks: int | None = None
    """Accelerators that a search may use. None: those of the job's own plan, or all `usable` ones when that has one."""
    tokens: float | None = None
    stall_s: float | None = None
    gpu_hours_between_failures: float | None = None


@dataclass(frozen=True)
class Answer:
    estimate: dict[str, Any] | None
    search: dict[str, Any] | None
    notes: tuple[str, ...]


def ask(spec: JobSpec, fabric: Fabric, question: Question) -> Answer:
    """Values of `report`. What cannot be estimated is a note, not an error."""
    device = device_of(fabric, spec.resources.accelerator)
    if spec.model.imported:
        return Answer(None, None, ("no estimate: only the ranks know what an imported model computes",))
    if device is None:
        return Answer(None, None, (f"no estimate: the fabric has {UNNAMED}",))
    if spec.training.precision.value not in device.peak:
        note = f"no estimate: {device.name} has no known rate for {spec.training.precision.value}"
        return Answer(None, None, (note,))
    network = network_of(fabric, device)
    given = {
        "tokens": question.tokens,
        "stall_s": question.stall_s,
        "gpu_hours_between_failures": question.gpu_hours_between_failures,
    }
    own = cost_report(plan_cost(spec, device, network), device, network, **given)
    notes = (*network.notes, *_left_out(spec))
    if not question.auto:
        return Answer(own, None, notes)
    world = spec.parallelism.world_size
    ranks = question.ranks or (world if world > 1 else usable(fabric, spec.resources))
    found = search(spec, device, network, ranks=ranks, fabric=fabric)
    best = [cost_report(cost, device, network, **given) for cost in found.best]
    return Answer(own, search_report(found, best), notes)


def _left_out(spec: JobSpec) -> Iterator[str]:
    offload = spec.training.offload
    if offload.optimizer != "none" or offload.activations:
        yield "training.offload is not estimated: memory and step time are those without it"
    if spec.data.document_masks:
        yield "data.document_masks is not estimated: attention is that of whole sequences"


def usable(fabric: Fabric, resources: ResourcesSpec) -> int:
    """Accelerators that one job may have: whole ones of nodes that take work, of the type that it asks for, else of the
    type with most; of all types where it mixes them. No more than the ranks a job may have."""
    counts = Counter[str | None]()
    for node in fabric.nodes:
        if node.alive and node.schedulable:
            counts[node.accelerator] += node.accelerators - len(node.partitioned)
    if resources.accelerator is not None:
        found = counts[resources.accelerator]
    else:
        found = counts.total() if resources.mix_accelerators else max(counts.values(), default=0)
    return min(found, MAX_RANKS)
