"""Exactness: whatever was killed and repaired on the way, the final weights are those of a run that nothing touched.

Same plan, same job; compared to the bit, read from the final checkpoints.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from actors.local_cluster import LocalCluster
from orchestrator.lifecycle.reports import EventKind, Outcome
from orchestrator.topology.fabric import Slot

pytestmark = pytest.mark.timeout(2400)

STEPS = 12
KILLS = 5
SEED = 20_2605


@pytest.fixture(scope="module")
def spec() -> dict[str, Any]:
    """tp 2 x pp 2 on four ranks, a checkpoint every second step, written while training goes on."""
    return {
        "name": "exact",
        "model": {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 64},
        "parallelism": {"tp": 2, "pp": 2, "microbatches": 2},
        "training": {"steps": STEPS, "global_batch": 4, "sequence_length": 32, "eval_sequences": 2},
        "checkpoint": {"every": 2, "keep": 2, "asynchronous": True},
        "recovery": {"max_restarts": 20, "max_restarts_at_step": 6, "step_timeout_s": 120.0},
        "placement": {"pp": {"tier": "any", "mode": "preferred"}},
    }


def weights(directory: Path, steps: int = STEPS) -> dict[str, Any]:
    """Everything in the final checkpoint of a job, by name: parameters, optimizer state, counters."""
    final = directory / "checkpoints" / f"step-{steps:08d}"
    assert final.is_dir(), sorted(path.name for path in (directory / "checkpoints").iterdir())
    whole = directory / "whole.pt"
    dcp_to_torch_save(final, whole)
    return flatten("", torch.load(whole, weights_only=False))


def flatten(prefix: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {
            name: leaf
            for key, part in value.items()
            for name, leaf in flatten(f"{prefix}/{key}", part).items()
        }
    if isinstance(value, list | tuple):
        return {n: leaf for i, part in enumerate(value) for n, leaf in flatten(f"{prefix}/{i}", part).items()}
    return {prefix: value}


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names whose values are not the same to the bit."""
    assert one.keys() == other.keys()
    assert sum(isinstance(value, torch.Tensor) and value.is_floating_point() for value in one.values()) > 10
    return [name for name in one if not same(one[name], other[name])]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.numpy().tobytes() == other.numpy().tobytes()
    return bool(one == other)


@pytest.fixture(scope="module")
def untouched() -> dict[str, dict[str, Any]]:
    """Final state of run A, made once by whichever test comes first."""
    return {}


def run_a(driver: Any, spec: dict[str, Any], slots: tuple[Slot, ...], kept: dict[str, Any]) -> dict[str, Any]:
    """Final state of the run that nothing touches."""
    if "a" not in kept:
        driver.start(slots, spec)
        report = driver.end()
        assert report.outcome is Outcome.SUCCEEDED, report.message
        assert [record.step for record in driver.steps] == list(range(1, STEPS + 1))
        driver.assert_nothing_left()
        kept["a"] = weights(driver.directory)
    found: dict[str, Any] = kept["a"]
    return found


def test_ranks_killed_at_random_steps(
    launcher: Any,
    new_driver: Callable[..., Any],
    spec: dict[str, Any],
    leaf_slots: tuple[Slot, ...],
    untouched: dict[str, dict[str, Any]],
) -> None:
    a = run_a(new_driver(launcher), spec, leaf_slots, untouched)
    dice = random.Random(SEED)
    points = [(dice.randint(2 * turn + 1, 2 * turn + 2), dice.randrange(4)) for turn in range(KILLS)]
    b = new_driver(launcher)
    b.start(leaf_slots, spec)
    for turn, (step, rank) in enumerate(points):
        report = b.until(
            lambda report, step=step, turn=turn: (
                report.attempt == turn + 1 and report.ranks and report.step >= step
            ),
            f"kill {turn}: attempt {turn + 1} has done step {step}",
        )
        os.kill(report.ranks[rank].pid, signal.SIGKILL)
        b.until(lambda report, turn=turn: report.attempt == turn + 2, f"attempt {turn + 2}")
    report = b.end()
    assert report.outcome is Outcome.SUCCEEDED, report.message
    deaths = [event for event in b.events if event.kind is EventKind.RANK_DIED]
    assert [death.data["rank"] for death in deaths] == [rank for _, rank in points]
    assert (report.attempt, report.restarts_used) == (KILLS + 1, KILLS)
    assert differing(a, weights(b.directory)) == []
    b.assert_nothing_left()


def test_raylet_killed_and_the_job_placed_elsewhere(
    breakable_cluster: LocalCluster,
    connect: Any,
    new_driver: Callable[..., Any],
    spec: dict[str, Any],
    untouched: dict[str, dict[str, Any]],
) -> None:
    launcher = connect(breakable_cluster)
    slots = tuple(Slot(node, index) for node in ("l0n0", "l0n1") for index in (0, 1))
    a = run_a(new_driver(launcher), spec, slots, untouched)
    first = new_driver(launcher)
    first.start(slots, spec)
    first.until(lambda report: report.step >= 5, "five steps are done")
    os.kill(breakable_cluster.raylets["l0n1"], signal.SIGKILL)
    lost = first.end()
    assert lost.outcome is Outcome.NODE_LOST, lost.message
    first.assert_nothing_left()
    # What the controller does next: the same job elsewhere, as the next incarnation.
    elsewhere = tuple(Slot(node, index) for node in ("l1n1", "l0n0") for index in (1, 0))
    second = new_driver(launcher, job_id=first.ref.job_id, incarnation=2)
    second.start(
        elsewhere,
        spec,
        first_attempt=lost.attempt + 1,
        restarts_used=lost.restarts_used + 1,
        deaths_at_step=lost.deaths_at_step,
    )
    report = second.end()
    assert report.outcome is Outcome.SUCCEEDED, report.message
    assert second.event(EventKind.RESUMED).data["step"] >= 2
    assert (report.attempt, report.restarts_used) == (2, 1)
    assert differing(a, weights(second.directory)) == []
    second.assert_nothing_left()
