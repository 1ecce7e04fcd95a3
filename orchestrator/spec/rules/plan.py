"""What the plan alone decides: ranks, the pipeline's schedule, over whom states are sharded."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.spec.rules.division import must_divide
from orchestrator.spec.sections import ParallelismSpec, PipelineSchedule, PlacementSpec, RecoverySpec
from orchestrator.spec.violations import Violation

ORDERED = ("tp", "cp", "ep", "dp", "pp")
"""Axes that `placement.order` names."""

MAX_RANKS = 131_072
"""Ranks of one job."""


def ranks(plan: ParallelismSpec) -> Iterator[Violation]:
    if plan.world_size > MAX_RANKS:
        message = f"tp x pp x dp x cp = {plan.world_size} ranks; a job has at most {MAX_RANKS}"
        yield Violation("parallelism", plan.world_size, message)


def fewest_replicas(plan: ParallelismSpec, recovery: RecoverySpec) -> Iterator[Violation]:
    if recovery.min_dp is not None and recovery.min_dp > plan.dp:
        yield Violation("recovery.min_dp", recovery.min_dp, f"must be at most parallelism.dp ({plan.dp})")


def order(placement: PlacementSpec, plan: ParallelismSpec) -> Iterator[Violation]:
    """An order names every axis of several ranks once; others may be left out."""
    given, field = placement.order, "placement.order"
    if given is None:
        return
    named = given.split("-")
    unknown = [axis for axis in dict.fromkeys(named) if axis not in ORDERED]
    twice = [axis for axis in dict.fromkeys(named) if named.count(axis) > 1]
    missing = [axis for axis in ORDERED if axis not in named and getattr(plan, axis) > 1]
    if unknown:
        yield Violation(field, given, f"names {', '.join(unknown)}; the axes are {', '.join(ORDERED)}")
    if twice:
        yield Violation(field, given, f"names {', '.join(twice)} more than once")
    if missing:
        degrees = ", ".join(f"{axis} {getattr(plan, axis)}" for axis in missing)
        yield Violation(field, given, f"leaves out axes of several ranks ({degrees}); name each of them once")


def schedule(plan: ParallelismSpec) -> Iterator[Violation]:
    """Stages a rank and micro-batches, as the schedules want them."""
    if plan.pp == 1:
        if plan.virtual_stages != 1:
            message = f"must be 1 without a pipeline (parallelism.pp is 1), not {plan.virtual_stages}"
            yield Violation("parallelism.virtual_stages", plan.virtual_stages, message)
        return
    yield from _virtual_stages(plan, plan.schedule.value)
    yield from _microbatches(plan, plan.schedule.value)


def stages_asked(plan: ParallelismSpec) -> int:
    """Stages of the pipeline once its virtual stages are what the schedule takes: what other rules go by, so that one
    wrong number is not reported twice."""
    if plan.pp == 1:
        return 1
    if not plan.schedule.takes_virtual_stages:
        return plan.pp
    if plan.schedule is PipelineSchedule.ZBV:
        return 2 * plan.pp
    least = 2 if plan.schedule is PipelineSchedule.INTERLEAVED_1F1B else 1
    return plan.pp * max(plan.virtual_stages, least)


def _virtual_stages(plan: ParallelismSpec, name: str) -> Iterator[Violation]:
    given = plan.virtual_stages
    if plan.schedule is PipelineSchedule.ZBV and given != 2:
        message = f"must be 2 with zbv, which gives each rank a stage from either end, not {given}"
    elif plan.schedule is PipelineSchedule.INTERLEAVED_1F1B and given < 2:
        message = f"must be at least 2 with {name}, not {given}; with one stage a rank use 1f1b"
    elif not plan.schedule.takes_virtual_stages and given != 1:
        message = f"must be 1 with {name}, not {given}; interleaved-1f1b and zero-bubble take more"
    else:
        return
    yield Violation("parallelism.virtual_stages", given, message)


def _microbatches(plan: ParallelismSpec, name: str) -> Iterator[Violation]:
    given, field = plan.microbatches, "parallelism.microbatches"
    if plan.schedule is PipelineSchedule.ONE_F_ONE_B and given < plan.pp:
        message = f"{name} with {plan.pp} pipeline ranks needs at least {plan.pp} micro-batches, not {given}"
        yield Violation(field, given, message)
    elif plan.schedule in (PipelineSchedule.INTERLEAVED_1F1B, PipelineSchedule.ZERO_BUBBLE):
        # Ranks take their stages in turn, for one round of micro-batches each (Narayanan et al. 2021, section 2.2).
        rounds = max(1, given // plan.pp)
        if given % rounds:
            message = (
                f"{name} deals them in {rounds} equal rounds, which {given} do not fill; "
                f"a multiple of parallelism.pp ({plan.pp}) does"
            )
            yield Violation(field, given, message)


def sharding(plan: ParallelismSpec) -> Iterator[Violation]:
    """ZeRO: ranks to shard over, and neighbours to reshard over."""
    if plan.zero and plan.dp * plan.cp == 1:
        message = (
            "needs data or context ranks to shard over; parallelism.dp and cp are 1, "
            f"so must be 0, not {plan.zero}"
        )
        yield Violation("parallelism.zero", plan.zero, message)
    if plan.dp_shard is not None:
        yield from _shards(plan, plan.dp_shard)
    yield from _resharding(plan)


def _shards(plan: ParallelismSpec, given: int) -> Iterator[Violation]:
    field = "parallelism.dp_shard"
    if not plan.zero:
        message = (
            "needs parallelism.zero 1, 2 or 3: without ZeRO nothing is sharded over data ranks; "
            f"leave it out, not {given}"
        )
        yield Violation(field, given, message)
        return
    yield from must_divide(field, given, "parallelism.dp", plan.dp)
    if given == 1 and plan.cp == 1 and plan.dp > 1:
        message = (
            f"must be at least 2 with zero {plan.zero} and cp 1: over one rank nothing is sharded, not 1"
        )
        yield Violation(field, given, message)


def _resharding(plan: ParallelismSpec) -> Iterator[Violation]:
    """A number makes groups of neighbours, which all ranks of the job have to make together."""
    field, value = "parallelism.reshard_after_forward", plan.reshard_after_forward
    if value is True:
        return
    if plan.zero != 3:
        message = f"is a choice of parallelism.zero 3 alone; leave it out with zero {plan.zero}"
        yield Violation(field, value, message)
        return
    if type(value) is not int:
        return
    if plan.pp > 1:
        message = (
            f"must be true or false with a pipeline, which keeps parameters gathered all step, not {value}"
        )
        yield Violation(field, value, message)
    if plan.tp > 1:
        message = f"must be true or false with parallelism.tp {plan.tp}, not {value}: a number needs tp 1"
        yield Violation(field, value, message)
    shards = plan.shards * plan.cp
    if plan.dp % plan.shards == 0 and (shards % value or value >= shards):
        message = f"must divide the {shards} ranks that share the states and be less, not {value}"
        yield Violation(field, value, message)
