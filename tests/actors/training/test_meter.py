"""The cost in step records: parts add up to the step's time, bytes are the mean over ranks, the unknown is absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from plans import demo_job, run_engine, train_job
from traffic_plans import expected

from actors.training.metrics.memory import device_name, peak_bytes
from orchestrator.estimate.stages import stages_of
from orchestrator.lifecycle.cost import PHASES, step_cost

PLAN = {"tp": 2, "pp": 2, "dp": 1, "microbatches": 2}


def test_step_records_say_what_the_step_cost(tmp_path: Path) -> None:
    spec = demo_job(parallelism=PLAN, steps=4, global_batch=4, eval_sequences=6, eval_every=2)
    steps = train_job(spec, tmp_path)[0].steps
    for record in steps:
        cost = record["cost"]
        assert set(cost["phases_s"]) == set(PHASES)
        assert min(cost["phases_s"].values()) >= 0
        # `other` is what is left, so a sum that is too large would show a phase counted twice.
        known = sum(cost["phases_s"].values()) + sum(cost["exposed_s"].values())
        assert known == pytest.approx(record["step_time_s"], rel=0.01)
        assert min(cost["phases_s"][phase] for phase in ("data", "forward", "backward", "optimizer")) > 0
        assert set(cost["exposed_s"]) == {"tp", "pp", "control"}
        assert "mfu" not in cost, "the peak of a CPU is not known"
        assert cost["peak_bytes"] > 50 << 20
        kept = step_cost(cost)
        assert kept.keys() == cost.keys()
        assert kept["sent_bytes"] == cost["sent_bytes"]
    # The evaluation after step 2 lies in the time of step 3.
    assert [s["cost"]["phases_s"]["evaluation"] > 0 for s in steps] == [False, False, True, False]
    by_rank = [expected(spec, stages_of(spec.parallelism, stage)) for stage in (0, 1)]
    for axis in ("tp", "pp"):
        mean = sum(sent[axis] for sent in by_rank) / 2
        assert steps[-1]["cost"]["sent_bytes"][axis] == pytest.approx(mean, rel=0.01)


def test_every_rank_begins_anew_with_each_record() -> None:
    spec = demo_job(parallelism={"dp": 2, "microbatches": 1}, steps=4, global_batch=4)

    def body(engine: Any, rank: int) -> list[dict[str, int]]:
        sent = []
        for step in range(3):
            engine.train_step(step, stop=False)
            sent.append(engine.meter.record(1.0)["sent_bytes"])
        assert engine.meter.record(1.0)["sent_bytes"] == {}
        return sent

    for sent in run_engine(spec, body):
        assert sent[0]["dp"] == sent[1]["dp"] == sent[2]["dp"] > 0


def test_memory_of_a_cpu_is_the_process_and_has_no_name() -> None:
    cpu = torch.device("cpu")
    before = peak_bytes(cpu)
    held = torch.ones(64 << 20, dtype=torch.uint8)
    assert peak_bytes(cpu) >= before
    assert peak_bytes(cpu) >= held.numel()
    assert device_name(cpu) is None
