"""Scenarios follow from their seeds, and 200 of them hold every kind of fault, moment and job."""

from __future__ import annotations

import itertools
from collections import Counter

from orchestrator.spec import parse_spec
from tests.chaos.scenario import (
    JOBS,
    NEEDS_STEPS,
    OF_THE_CLUSTER,
    STEPS,
    WORLD,
    Kind,
    When,
    document,
    scenario,
    scenarios,
)

RUNS = 200


def test_the_same_seed_is_the_same_scenario() -> None:
    assert list(scenarios(0, RUNS)) == list(scenarios(0, RUNS))
    assert scenario(7) == list(scenarios(0, RUNS))[7]
    assert len({(one.job, one.faults) for one in scenarios(0, RUNS)}) > RUNS * 0.9


def test_two_hundred_seeds_hold_everything() -> None:
    faults = [fault for one in scenarios(0, RUNS) for fault in one.faults]
    assert Counter(fault.kind for fault in faults).keys() == set(Kind)
    assert {fault.when for fault in faults} == set(When)
    assert {one.job for one in scenarios(0, RUNS)} == JOBS.keys()
    both_at_once = [f for f in faults if f.when is When.AFTER and f.at == 0 and f.kind is not Kind.KILL_RANK]
    assert both_at_once
    assert [f for f in faults if f.when is When.AFTER and f.at > 0]


def test_no_scenario_asks_for_what_cannot_be() -> None:
    for one in scenarios(0, 2000):
        assert one.faults[0].when is not When.AFTER
        assert sum(fault.kind in OF_THE_CLUSTER for fault in one.faults) <= 1
        for fault in one.faults:
            assert 0 <= fault.victim < WORLD[one.job]
            assert not (fault.kind in NEEDS_STEPS and fault.when is When.START)
            assert fault.when is not When.STEP or 0 < fault.at < STEPS
        for fault, after in itertools.pairwise(one.faults):
            if fault.kind is Kind.CORRUPT_SHARD:
                assert (after.kind, after.at) == (Kind.KILL_RANK, 0.0), "or nobody would read it"


def test_the_jobs_are_job_files() -> None:
    for job, ranks in WORLD.items():
        spec = parse_spec(document(job, witness="/w", programs="/p", pause_s=0.0))
        assert spec.parallelism.world_size == ranks
