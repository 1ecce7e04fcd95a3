"""Saving and loading: exact, under the same plan and another one, alone and in a gang; pruning; two saves at once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from actors.checkpoint import CheckpointStore, rng

RunGang = Callable[..., list[Any]]


def _train_save_train(rank: Any, trainee: Any, asynchronous: bool) -> dict[str, Any]:
    """3 steps, a save, 3 more steps: the values an uninterrupted run ends with, and those it had at the save."""
    one = trainee(rank.world_size)
    torch.manual_seed(100 + rank.rank)
    store = rank.store(plan={"dp": rank.world_size})
    one.train(3)
    store.save(3, {"app": one}, {"cursor": 33}, asynchronous)
    at_save = one.values()
    one.train(3)
    store.wait()
    return {"results": store.drain(), "at_save": at_save, "end": one.values()}


def _load_and_train(rank: Any, trainee: Any, plan: dict[str, int]) -> dict[str, Any]:
    one = trainee(rank.world_size, seed=7)
    torch.manual_seed(999)
    store = rank.store(attempt="1-2", plan=plan)
    loaded = store.load_latest({"app": one})
    at_load = one.values()
    one.train(3)
    return {"loaded": loaded, "at_load": at_load, "end": one.values()}


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_resumed_run_ends_with_the_same_bits(
    run_gang: RunGang, tmp_path: Path, trainee: Any, world_size: int, asynchronous: bool
) -> None:
    first = run_gang(world_size, tmp_path / "c", _train_save_train, trainee, asynchronous)
    assert [result["results"] for result in first] == [first[0]["results"]] * world_size
    (saved,) = first[0]["results"]
    assert saved.committed
    assert saved.path == tmp_path / "c" / "step-00000003"
    files = json.loads((saved.path / "manifest.json").read_text())["files"]
    assert saved.bytes == sum((saved.path / name).stat().st_size for name in files)
    assert set(files) == {".metadata", *(f"__{rank}_0.distcp" for rank in range(world_size))}

    second = run_gang(world_size, tmp_path / "c", _load_and_train, trainee, {"dp": world_size})
    for before, after in zip(first, second, strict=True):
        assert after["loaded"].step == 3
        assert after["loaded"].extras == {"cursor": 33}
        assert after["loaded"].rng_restored
        assert after["at_load"] == before["at_save"]
        assert after["end"] == before["end"]


def test_another_world_size_loads_everything_but_rng(run_gang: RunGang, tmp_path: Path, trainee: Any) -> None:
    first = run_gang(4, tmp_path / "c", _train_save_train, trainee, True)
    for world_size in (2, 1):
        second = run_gang(world_size, tmp_path / "c", _load_and_train, trainee, {"dp": world_size})
        assert all(after["at_load"] == first[0]["at_save"] for after in second)
        assert not any(after["loaded"].rng_restored for after in second)


def test_another_plan_of_the_same_size_leaves_rng_out(
    run_gang: RunGang, tmp_path: Path, trainee: Any
) -> None:
    first = run_gang(2, tmp_path / "c", _train_save_train, trainee, False)
    second = run_gang(2, tmp_path / "c", _load_and_train, trainee, {"tp": 2})
    assert second[0]["at_load"] == first[0]["at_save"]
    assert not second[0]["loaded"].rng_restored


def test_every_generator_is_restored() -> None:
    state = rng.capture()
    drawn = (torch.rand(3).tolist(), random.random(), np.random.rand(3).tolist(), random.gauss(0, 1))
    rng.restore(state)
    assert drawn == (torch.rand(3).tolist(), random.random(), np.random.rand(3).tolist(), random.gauss(0, 1))


def _save_many(rank: Any, trainee: Any, keep: int, steps: list[int]) -> list[Any]:
    one = trainee(rank.world_size)
    store = rank.store(keep=keep)
    for step in steps:
        store.save(step, {"app": one}, {"cursor": step}, True)
    store.wait()
    store.tidy(60.0)
    return store.drain()


def test_only_the_newest_checkpoints_are_kept(run_gang: RunGang, tmp_path: Path, trainee: Any) -> None:
    results = run_gang(2, tmp_path / "c", _save_many, trainee, 2, [1, 2, 3, 4, 5])[1]
    assert [(one.step, one.pruned) for one in results] == [(1, ()), (2, ()), (3, (1,)), (4, (2,)), (5, (3,))]
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["step-00000004", "step-00000005"]


def test_an_existing_directory_is_never_overwritten(run_gang: RunGang, tmp_path: Path, trainee: Any) -> None:
    standing = tmp_path / "c" / "step-00000004"
    standing.mkdir(parents=True)
    results = run_gang(1, tmp_path / "c", _save_many, trainee, 3, [4])[0]
    assert results[0].path == tmp_path / "c" / "step-00000004-2"
    assert list(standing.iterdir()) == []


def _reduce_during_saves(rank: Any, trainee: Any) -> dict[str, Any]:
    """All-reduces on the default group while saves run; counts those during a save and the wrong ones."""
    one = trainee(rank.world_size)
    ballast = {f"w{i}": torch.full((1 << 16,), float(i)) for i in range(8)}

    class Ballast:
        def state_dict(self) -> dict[str, Any]:
            return ballast

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    store = rank.store(keep=2)
    wrong = overlapped = rounds = 0
    results: list[Any] = []
    for step in range(1, 6):
        store.save(step, {"app": one, "ballast": Ballast()}, {}, True)
        for _ in range(60):
            rounds += 1
            value = torch.full((257,), float(rank.rank + rounds))
            dist.all_reduce(value)
            expected = sum(other + rounds for other in range(rank.world_size))
            wrong += int(not bool((value == expected).all()))
            results += store.drain()
            overlapped += int(len(results) < step)
    store.wait()
    return {"wrong": wrong, "overlapped": overlapped, "results": results + store.drain()}


def test_training_may_communicate_while_a_save_is_written(
    run_gang: RunGang, tmp_path: Path, trainee: Any
) -> None:
    for told in run_gang(4, tmp_path / "c", _reduce_during_saves, trainee):
        assert told["wrong"] == 0
        assert told["overlapped"] > 0, "no all-reduce ran during a save: the test shows nothing"
        assert [one.step for one in told["results"] if one.committed] == [1, 2, 3, 4, 5]


def _change_after_save(rank: Any, trainee: Any) -> Any:
    """Overwrites the weights in place right after an asynchronous save returned."""
    one = trainee(rank.world_size)
    before = one.values()
    store = rank.store()
    store.save(1, {"app": one}, {}, True)
    with torch.no_grad():
        for parameter in one.model.parameters():
            parameter.zero_()
    store.wait()
    assert store.load_latest({"app": one}) is not None
    return one.values() == before


def test_a_snapshot_does_not_see_later_training(run_gang: RunGang, tmp_path: Path, trainee: Any) -> None:
    assert run_gang(2, tmp_path / "c", _change_after_save, trainee) == [True, True]


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    def make(**changed: Any) -> CheckpointStore:
        given = {"keep": 1, "attempt": "1-1", "process_group": None, "rank": 0, "world_size": 1, **changed}
        return CheckpointStore(tmp_path, **given)

    with pytest.raises(ValueError, match="keep is 0"):
        make(keep=0)
    with pytest.raises(ValueError, match=r"attempt '\.\./x'"):
        make(attempt="../x")
    with pytest.raises(ValueError, match="2 ranks need a process group"):
        make(world_size=2)
