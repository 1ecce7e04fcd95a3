"""Which plan trains a job soonest on so many accelerators: every plan that the engine takes and that fits, by the
estimate of `step`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.estimate.candidates import Candidate, candidates
from orchestrator.estimate.hardware import Accelerator
from orchestrator.estimate.network import Network
from orchestrator.estimate.rank_memory import RankMemory, rank_memory
from orchestrator.estimate.share import Formats
from orchestrator.estimate.step import Convention, Rate, StepSeconds, rate, step_seconds
from orchestrator.estimate.workload import Again, Workload, engine_stack
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Refusal
from orchestrator.placement.solver import solve
from orchestrator.spec.job import JobSpec
from orchestrator.spec.rules import incompatibilities
from orchestrator.spec.sections import Section
from orchestrator.topology.fabric import Fabric

USABLE = 0.94
"""Of an accelerator's memory: the rest is a margin for what the estimate does not see."""
MOST_UNPLACED = 100
"""Meshes that find no place before the search gives up: trying one takes the solver's time."""


@dataclass(frozen=True)
class PlanCost:
    """A plan with what it costs."""

    spec: JobSpec
    memory: RankMemory
    step: StepSeconds
    rate: Rate


@dataclass(frozen=True)
class Search:
    best: tuple[PlanCost, ...]
    """Fastest first; of plans alike but for schedule and micro-batches the fastest."""
    considered: int
    lost: Mapping[str, int]
    """Why the others lost: `memory`, `refused`, or the part of the step by which they are slower than the best plan:
    `bubble`, `communication`, `recompute`, `compute`. `untried`: no plan found a place and the search gave up."""


def plan_cost(spec: JobSpec, device: Accelerator, network: Network) -> PlanCost:
    """ValueError for an imported model."""
    work = Workload.of(spec)
    step = step_seconds(work, device, network)
    found = rate(work, device, step.total, Convention.CAUSAL)
    return PlanCost(spec, rank_memory(work, Formats.of(spec.training)), step, found)


def fits(memory: RankMemory, device: Accelerator) -> bool:
    return memory.total <= USABLE * device.memory_bytes


def search(
    spec: JobSpec,
    device: Accelerator,
    network: Network,
    *,
    ranks: int,
    fabric: Fabric | None = None,
    most: int = 10,
) -> Search:
    """The `most` fastest plans for `spec` on `ranks` accelerators. With a fabric, only plans whose required placement
    rules it can keep when it is empty. ValueError for an imported model."""
    lost = Counter[str]()
    timed: list[tuple[float, JobSpec, StepSeconds]] = []
    base, formats = Workload.of(spec), Formats.of(spec.training)
    stacks = [engine_stack(_with_zero(spec, zero)) for zero in (0, 1)]
    for candidate in candidates(spec, ranks, network):
        work = replace(
            base,
            plan=candidate.plan,
            again=Again(candidate.recompute),
            again_every=1,
            stack=stacks[min(1, candidate.plan.zero)],
        )
        if not fits(rank_memory(work, formats), device):
            lost["memory"] += 1
            continue
        job = with_plan(spec, candidate)
        if _breaks_rules(job):
            lost["refused"] += 1
            continue
        step = step_seconds(work, device, network)
        timed.append((step.total, job, step))
    timed.sort(key=lambda entry: entry[0])
    best, unplaced = _placed(timed, fabric, most)
    considered = lost.total() + len(timed)
    lost["refused"] += len(unplaced)
    lost.update(_reasons(timed, set(best), unplaced))
    costs = tuple(plan_cost(timed[position][1], device, network) for position in best)
    return Search(costs, considered, {reason: count for reason, count in lost.items() if count})


def _placed(
    timed: Sequence[tuple[float, JobSpec, StepSeconds]], fabric: Fabric | None, most: int
) -> tuple[list[int], set[int]]:
    """Positions of the `most` fastest plans that find a place on the empty fabric, and of those before that find none.
    Of plans alike but for schedule and micro-batches the fastest alone is among the best."""
    best: list[int] = []
    unplaced = set[int]()
    shown = set[tuple[object, ...]]()
    placeable: dict[Mesh, bool] = {}
    for position, (_, job, _) in enumerate(timed):
        mesh = Mesh.of(job.parallelism)
        if len(best) == most or (mesh not in placeable and _without(placeable) == MOST_UNPLACED):
            break
        if (kind := _kind(job)) in shown:
            continue
        if mesh not in placeable:
            placeable[mesh] = fabric is None or _has_place(job, mesh, fabric)
        if placeable[mesh]:
            best.append(position)
            shown.add(kind)
        else:
            unplaced.add(position)
    return best, unplaced


def _without(placeable: Mapping[Mesh, bool]) -> int:
    return list(placeable.values()).count(False)


def with_plan(spec: JobSpec, candidate: Candidate) -> JobSpec:
    recompute = spec.training.recompute.model_copy(update={"mode": candidate.recompute, "every": 1})
    training = spec.training.model_copy(update={"recompute": recompute})
    return spec.model_copy(update={"parallelism": candidate.plan, "training": training})


def _with_zero(spec: JobSpec, zero: int) -> JobSpec:
    return spec.model_copy(update={"parallelism": spec.parallelism.model_copy(update={"zero": zero})})


def _kind(spec: JobSpec) -> tuple[object, ...]:
    plan = spec.parallelism
    return plan.tp, plan.cp, plan.pp, plan.dp, plan.ep, plan.zero, spec.training.recompute.mode


def _breaks_rules(spec: JobSpec) -> bool:
    return bool(incompatibilities({name: value for name, value in spec if isinstance(value, Section)}))


def _has_place(spec: JobSpec, mesh: Mesh, fabric: Fabric) -> bool:
    found = solve(mesh, spec.placement, fabric, fabric.slots(), resources=spec.resources)
    return not isinstance(found, Refusal)


def _reasons(
    timed: Sequence[tuple[float, JobSpec, StepSeconds]], best: set[int], unplaced: set[int]
) -> Iterator[str]:
    """Of each plan that is neither among the best nor without a place: the part that exceeds the best plan's most."""
    fastest = _parts(timed[min(best)][2]) if best else None
    for position, (_, _, step) in enumerate(timed):
        if position in best or position in unplaced:
            continue
        if fastest is None:
            yield "untried"
            continue
        excess = {name: seconds - fastest[name] for name, seconds in _parts(step).items()}
        yield max(excess, key=lambda name: excess[name])


def _parts(step: StepSeconds) -> dict[str, float]:
    return {
        "bubble": step.bubble,
        "communication": sum(step.exposed.values()),
        "recompute": step.again,
        "compute": step.forward + step.backward + step.optimizer,
    }
