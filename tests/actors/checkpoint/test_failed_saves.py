"""A save that fails never kills training, says why and on which rank, and leaves nothing half-done."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

RunGang = Callable[..., list[Any]]
WORLD_SIZE = 2


class Ballast:
    """`count` bytes of each rank's own, so that every rank writes a file of that size."""

    def __init__(self, rank: int, count: int) -> None:
        self.key, self.value = f"ballast-{rank}", torch.ones(count // 4)

    def state_dict(self) -> dict[str, Any]:
        return {self.key: self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state[self.key]


def _still_training() -> bool:
    value = torch.ones(1)
    dist.all_reduce(value)
    return float(value) == WORLD_SIZE


def _save_under_a_limit(rank: Any, asynchronous: bool) -> dict[str, Any]:
    """Rank 1 may write no file above 256 KiB for the second save."""
    store = rank.store()
    small, large = Ballast(rank.rank, 1 << 16), Ballast(rank.rank, 1 << 20)
    store.save(1, {"app": small}, {}, asynchronous)
    store.wait()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if rank.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, before[1]))
    store.save(2, {"app": large}, {}, asynchronous)
    store.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    training = _still_training()  # rank 0 comes here after it cleaned up
    left = sorted(path.name for path in (rank.directory).iterdir())
    store.save(3, {"app": large}, {}, asynchronous)
    store.wait()
    results = store.drain()
    loaded = store.load_latest({"app": large})
    return {"results": results, "left": left, "training": training, "loaded": loaded and loaded.step}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_rank_that_cannot_write_fails_the_save_alone(
    run_gang: RunGang, tmp_path: Path, asynchronous: bool
) -> None:
    for told in run_gang(WORLD_SIZE, tmp_path / "c", _save_under_a_limit, asynchronous):
        first, second, third = told["results"]
        assert first.committed
        assert third.committed
        assert not second.committed
        assert second.failed_rank == 1
        assert "rank 1: " in second.failed
        assert "File too large" in second.failed
        assert told["left"] == ["step-00000001"]
        assert told["training"]
        assert told["loaded"] == 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mount)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not allowed here: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def _fill_the_disk(rank: Any) -> dict[str, Any]:
    store = rank.store()
    small, large = Ballast(rank.rank, 1 << 18), Ballast(rank.rank, 2 << 20)
    results = []
    for step, state in ((1, small), (2, large), (3, small)):
        store.save(step, {"app": state}, {}, True)
        store.wait()
        results += store.drain()
    loaded = store.load_latest({"app": small})
    return {"results": results, "training": _still_training(), "loaded": loaded}


def test_a_full_disk_keeps_the_older_checkpoint_and_training(run_gang: RunGang, small_disk: Path) -> None:
    for told in run_gang(WORLD_SIZE, small_disk / "c", _fill_the_disk):
        first, second, third = told["results"]
        assert first.committed
        assert "No space left on device" in second.failed
        assert str(small_disk / "c") in second.failed
        assert third.committed, "the failed save left its files behind: no room for a small one"
        assert told["training"]
        assert told["loaded"].step == 3
        assert told["loaded"].skipped == ()
    left = {path.name for path in (small_disk / "c").iterdir() if not path.name.startswith(".fence-")}
    assert left == {"step-00000001", "step-00000003"}


def _save_below_a_file(rank: Any) -> list[Any]:
    store = rank.store()
    store.save(1, {"app": Ballast(rank.rank, 64)}, {}, True)
    store.wait()
    assert _still_training()
    return store.drain()


def test_a_directory_that_cannot_be_made_fails_the_save(run_gang: RunGang, tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file")
    for (result,) in run_gang(WORLD_SIZE, tmp_path / "occupied" / "c", _save_below_a_file):
        assert result.failed_rank == 0
        assert "NotADirectoryError" in result.failed


def _save_with_extras(rank: Any) -> list[Any]:
    store = rank.store()
    store.save(1, {"app": Ballast(rank.rank, 64)}, {"bad": object()}, True)
    store.wait()
    assert _still_training()  # rank 0 comes here after it cleaned up
    return [store.drain(), list(rank.directory.iterdir())]


def test_extras_that_are_no_json_fail_the_save(run_gang: RunGang, tmp_path: Path) -> None:
    for (result,), left in run_gang(WORLD_SIZE, tmp_path / "c", _save_with_extras):
        assert "extras must be JSON values" in result.failed
        assert left == []


def _save_nan(rank: Any, trainee: Any) -> dict[str, Any]:
    one = trainee(rank.world_size)
    store = rank.store()
    store.save(1, {"app": one}, {}, True)
    with torch.no_grad():
        local = next(iter(one.model.parameters())).to_local()
        good = local.clone()
        if rank.rank == 1:
            local[0, 0] = float("nan")
    store.save(2, {"app": one}, {}, True)
    with torch.no_grad():
        local.copy_(good)
    store.save(3, {"app": one}, {}, True)
    store.wait()
    assert _still_training()  # rank 0 comes here after it cleaned up
    return {"results": store.drain(), "left": sorted(path.name for path in (rank.directory).iterdir())}


def test_row_70_non_finite_weights_are_never_committed(
    run_gang: RunGang, tmp_path: Path, trainee: Any
) -> None:
    for told in run_gang(WORLD_SIZE, tmp_path / "c", _save_nan, trainee):
        first, second, third = told["results"]
        assert first.committed
        assert third.committed
        assert second.failed_rank == 1
        assert "rank 1: app.model.0.weight has 1 non-finite of" in second.failed
        assert told["left"] == ["step-00000001", "step-00000003"]


class Broken:
    """A state that one rank cannot give."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def state_dict(self) -> dict[str, Any]:
        if self.rank == 1:
            raise RuntimeError("out of memory")
        return {"x": torch.ones(3)}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def _save_broken(rank: Any) -> list[Any]:
    store = rank.store()
    store.save(1, {"app": Broken(rank.rank)}, {}, False)
    return store.drain()


def test_a_state_that_cannot_be_copied_fails_the_save_everywhere(run_gang: RunGang, tmp_path: Path) -> None:
    for (result,) in run_gang(WORLD_SIZE, tmp_path / "c", _save_broken):
        assert result.failed == "rank 1: RuntimeError: out of memory"


def _outlive_a_peer(rank: Any) -> list[Any]:
    store = rank.store()
    store.save(1, {"app": Ballast(rank.rank, 64)}, {}, True)
    store.wait()
    if rank.rank == 1:
        os._exit(9)
    rank.tell("alive")
    store.save(2, {"app": Ballast(rank.rank, 64)}, {}, True)
    store.wait()
    return [store.drain(), sorted(path.name for path in (rank.directory).iterdir())]


def test_a_dead_peer_fails_the_save_and_not_the_process(
    start_gang: Callable[..., Any], tmp_path: Path
) -> None:
    gang = start_gang(WORLD_SIZE, tmp_path / "c", _outlive_a_peer)
    assert gang.hear(0) == "alive"
    (first, second), left = gang.hear(0)
    assert first.committed
    assert "the ranks could not agree" in second.failed
    assert second.failed_rank is None
    assert left == ["step-00000001"]
