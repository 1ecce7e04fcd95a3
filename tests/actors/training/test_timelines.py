"""What ranks record of their steps, what is reported of it, and clocks of several hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gang import run_ranks
from plans import demo_job, train_job

from actors.training.parallel import clock_offset
from actors.training.parallel.clock_offset import HostClocks, Offset, monotonic_us
from actors.training.parallel.timeline import LEAST_EVERY, Recorder
from orchestrator.lifecycle.timeline import Span, Timeline, Work


class FakeClock:
    """Every reading is 10 us after the one before."""

    def __init__(self) -> None:
        self._now_us = 0

    def anchor(self, *, exact: bool) -> None:
        self._now_us = 0

    def mark(self) -> int:
        self._now_us += 10
        return self._now_us

    def read_us(self, mark: Any) -> int:
        return int(mark)


def test_the_loss_belongs_to_the_forward_before_it() -> None:
    recorder = Recorder(FakeClock())
    loss = recorder.with_loss(lambda output, target: output + target)
    assert int(loss(torch.tensor(1), torch.tensor(2))) == 3  # shapes are tried before anything is recorded
    recorder.begin()
    for micro in range(2):
        recorder.add(Work.FORWARD, 3, micro, recorder.mark())
        loss(torch.tensor(1), torch.tensor(2))
    assert recorder.spans() == [Span(Work.FORWARD, 3, 0, 10, 30), Span(Work.FORWARD, 3, 1, 40, 60)]
    recorder.begin()
    assert recorder.spans() == []


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param({"pp": 2, "dp": 2, "microbatches": 2}, id="pipeline"),
        pytest.param({"microbatches": 4}, id="accumulation"),
    ],
)
def test_the_second_step_and_one_in_many_are_reported(tmp_path: Path, plan: dict[str, Any]) -> None:
    steps = LEAST_EVERY + 1 if "pp" not in plan else 3
    small = {"sequence_length": 8, "eval_sequences": 4, "global_batch": 4}
    reporters = train_job(demo_job(parallelism=plan, steps=steps, **small), tmp_path)
    assert not any(reporter.of("timeline") for reporter in reporters[1:])
    found = [Timeline.model_validate(document) for document in reporters[0].of("timeline")]
    assert [timeline.step for timeline in found] == [step for step in (2, LEAST_EVERY) if step <= steps]
    first = found[0]
    assert [rank.rank for rank in first.ranks] == list(
        range(plan.get("pp", 1))
    )  # dp 0 alone; pp ranks are next
    for stage, rank in enumerate(first.ranks):
        works = sorted((span.microbatch, span.work) for span in rank.spans)
        both = (Work.BACKWARD, Work.FORWARD)
        assert works == [(micro, work) for micro in range(plan["microbatches"]) for work in both]
        assert {span.stage for span in rank.spans} == {stage}
        assert rank.totals.steps == 2
    assert min(rank.start_us for rank in first.ranks) == 0
    assert max(rank.end_us for rank in first.ranks) == first.window_us
    if "pp" not in plan:
        assert found[1].ranks[0].totals.steps == LEAST_EVERY - 2


def measured(host_of: Any, ahead_us: Any, *, backends: str | None = None) -> list[Offset]:
    """The offsets of three ranks whose hosts' clocks are `ahead_us(rank)` ahead."""

    def program(rank: int, store: Any) -> Offset:
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=3)
        if backends is not None:
            clock_offset.dist.get_backend_config = lambda group: backends
        clocks = HostClocks(
            dist.group.WORLD,
            host=lambda: host_of(rank),
            clock_us=lambda: monotonic_us() + ahead_us(rank),
        )
        begun_us = 100 + ahead_us(rank)
        clocks.measure(begun_us=begun_us)
        return clocks.measure(begun_us=begun_us)  # again: hosts are told once, offsets measured each time

    return run_ranks(3, program)


def test_ranks_of_one_host_share_a_clock() -> None:
    assert measured(lambda rank: "a", lambda rank: 0) == [Offset(0, 0)] * 3


def test_clocks_of_other_hosts_are_measured_by_round_trips() -> None:
    ahead = [0, 0, 7_000_000]
    found = measured(lambda rank: "aab"[rank], ahead.__getitem__)
    assert found[:2] == [Offset(0, 0)] * 2
    assert found[2].error_us is not None
    assert abs(found[2].offset_us - 7_000_000) <= found[2].error_us + 1


def test_a_host_without_a_name_is_measured_too() -> None:
    first, *others = measured(lambda rank: "", [0, 3_000_000, -4_000_000].__getitem__)
    assert first == Offset(0, 0)
    for offset, ahead in zip(others, (3_000_000, -4_000_000), strict=True):
        assert offset.error_us is not None
        assert abs(offset.offset_us - ahead) <= offset.error_us + 1


def test_clocks_that_cannot_be_compared_are_said_to_be_unknown() -> None:
    ahead = [0, 0, 7_000_000]
    found = measured(lambda rank: "aab"[rank], ahead.__getitem__, backends="cuda:nccl")
    # All began at 100 us of their own clocks, so the offsets are what their clocks are ahead.
    assert found == [Offset(0, None), Offset(0, None), Offset(7_000_000, None)]
