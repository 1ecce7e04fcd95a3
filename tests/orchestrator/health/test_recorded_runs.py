"""The public recordings. What is true of each is said by their source, not by this program."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.health.recording import judge, read_recording
from orchestrator.health.verdict import Kind, Uneven, Verdict


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return shared_data / "straggler" / "steptimes"


def verdict_of(path: Path) -> Verdict:
    return judge(read_recording(path))


def test_trace_ar_rank_0_is_the_straggler(folder: Path) -> None:
    """Its forward takes 2.5 and its backward 2.3 times as long, from the first step to the last."""
    verdict = verdict_of(folder / "bytedance_AR_per_rank_step.csv")
    (found,) = verdict.stragglers
    assert (found.rank, found.kind, found.from_step, found.to_step) == (0, Kind.CONSTANT, 16, 1238)
    assert found.factor == pytest.approx(2.35, abs=0.05)
    assert verdict.imbalance == ()


def test_trace_st_nobody_is_faulty_the_last_stage_has_more_work(folder: Path) -> None:
    verdict = verdict_of(folder / "bytedance_ST_per_rank_step.csv")
    assert verdict.healthy
    assert verdict.stragglers == ()
    assert [(one.kind, one.stage, one.ranks) for one in verdict.imbalance] == [(Uneven.STAGE, 3, (6, 7))]


def test_pai_job_1_worker_6_is_slow_in_iterations_1811_to_1941_only(folder: Path) -> None:
    verdict = verdict_of(folder / "pai_job1_per_rank_step.csv")
    (found,) = verdict.stragglers
    assert (found.rank, found.kind, found.from_step, found.to_step) == (6, Kind.TRANSIENT, 1811, 1941)
