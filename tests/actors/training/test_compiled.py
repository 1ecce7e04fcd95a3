"""Plans whose layers are compiled: the same losses, norms and weights as one process that compiles nothing (float64,
1e-9 relative, and losses in float32 within 1e-5). Plans are lines of `matrix.py`."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from matrix import choices, job
from plans import changed, run_engine
from test_equality import Run, assert_equal
from test_imported import run

STEPS = 3
QUICK = ("tp2",)
"""The part that every run of the tests has time for."""
PLANS = (
    *QUICK,
    "replicate2 accumulate4",
    "shard2 zero3 accumulate4",
    "tp2 shard2 zero3",
    "tp2-plain selective",
    "full",
    "selective",
    "1f1b",
    "interleaved-1f1b shard2 zero2 full",
    "1f1b tp2 replicate2",
    "gpipe tp2 selective offload-host",
    "ep1 replicate2 full",
)


def job_of(line: str, precision: str, *, compiled: bool) -> Any:
    spec = job(line, precision=precision, directory="/unused", steps=STEPS)
    return changed(spec, training={"compile": compiled})


@cache
def alone(line: str, precision: str) -> Run:
    return run(job_of(line, precision, compiled=False), steps=STEPS)


@pytest.mark.parametrize(
    "line",
    [pytest.param(p, marks=() if p in QUICK else pytest.mark.slow, id=p.replace(" ", "+")) for p in PLANS],
)
def test_a_compiled_plan_is_one_process(line: str) -> None:
    experts = choices(line)["experts"] != "dense"
    reference = "ep1" if experts else ""
    assert_equal(
        run(job_of(line, "fp64", compiled=True), steps=STEPS), alone(reference, "fp64"), relative=1e-9
    )
    if (
        line in QUICK or experts
    ):  # seconds of compilation each; no grouped product of experts is traced in fp32
        return
    found = run(job_of(line, "fp32", compiled=True), steps=STEPS)
    assert found.losses == pytest.approx(alone(reference, "fp32").losses, rel=1e-5, abs=0)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["", "tp2", "full", "selective", "shard2 zero3"])
def test_code_compiled_for_one_layer_fits_the_others(line: str) -> None:
    """Else each layer is compiled anew until the compiler gives up, quietly, and the rest is not compiled."""
    spec = changed(job_of(line, "fp32", compiled=True), model={"layers": 12})

    def body(engine: Any, rank: int) -> int:
        from torch._dynamo import config, utils

        config.fail_on_recompile_limit_hit = True
        engine.train_step(0, stop=False)
        first = int(utils.counters["stats"]["unique_graphs"])
        engine.train_step(1, stop=False)
        assert int(utils.counters["stats"]["unique_graphs"]) == first, "the second step compiled again"
        return first

    pieces = max(run_engine(spec, body))
    # Communication of tp cuts a layer: at the entry and the exit of attention and of the feed-forward.
    assert 1 <= pieces <= (8 if "tp2" in line else 1)


def test_nothing_is_compiled_unless_the_job_says_so() -> None:
    def body(engine: Any, rank: int) -> bool:
        layers = engine.parts[0].layers.values()
        return any("forward" in vars(layer) for layer in layers)

    assert run_engine(job_of("", "fp32", compiled=False), body) == [False]
    assert run_engine(job_of("", "fp32", compiled=True), body) == [True]
