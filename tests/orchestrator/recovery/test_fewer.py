"""Fewer replicas: the same batch, and only where the job file allows it and still makes sense."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.recovery.fewer import degrees, with_replicas
from orchestrator.spec.job import JobSpec


def document(**plan: Any) -> dict[str, Any]:
    """Eight sequences a step, in micro-batches of one: 4 replicas x 2."""
    return {
        "name": "j",
        "parallelism": {"dp": 4, "microbatches": 2, **plan},
        "training": {"steps": 3, "global_batch": 8},
        "recovery": {"min_dp": 1},
    }


@pytest.mark.parametrize(("dp", "microbatches"), [(2, 4), (1, 8)])
def test_the_batch_and_the_micro_batch_stay_as_they_are(dp: int, microbatches: int) -> None:
    spec = JobSpec.model_validate(with_replicas(document(), dp))
    assert (spec.parallelism.dp, spec.parallelism.microbatches) == (dp, microbatches)
    assert spec.training.global_batch == 8


def test_degrees_share_out_the_micro_batches_whole() -> None:
    assert list(degrees(document(), below=4)) == [2, 1], "3 does not divide 8"
    assert list(degrees(document(), below=2)) == [1]


def test_none_without_leave_and_none_below_it() -> None:
    job = document()
    assert list(degrees({**job, "recovery": {"min_dp": 2}}, below=4)) == [2]
    assert list(degrees({**job, "recovery": {}}, below=4)) == []
    assert list(degrees({"name": "j"}, below=1)) == []


def test_shards_of_zero_come_out_whole() -> None:
    """Two shards of the states: 2 replicas hold them, 1 does not."""
    assert list(degrees(document(zero=1, dp_shard=2), below=4)) == [2]
