"""An attempt that runs on where nobody reaches it commits nothing once a newer one has opened the checkpoints."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from actors.checkpoint import CheckpointLoadError, CheckpointStore, commit, disk, layout


class Weights:
    def __init__(self, value: float = 0.0) -> None:
        self.value = torch.full((4,), value)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def attempt(directory: Path, name: str) -> CheckpointStore:
    return CheckpointStore(directory, keep=1, attempt=name, process_group=None, rank=0, world_size=1)


def save(store: CheckpointStore, step: int) -> Any:
    store.save(step, {"app": Weights(step)}, {}, asynchronous=False)
    (result,) = store.drain()
    return result


def committed(directory: Path) -> list[str]:
    return layout.newest_first(path.name for path in directory.iterdir())


@pytest.mark.parametrize("newer", ["1-2", "1-10", "2-1"])
def test_row_40_the_older_attempt_commits_no_more_and_prunes_nothing(tmp_path: Path, newer: str) -> None:
    old = attempt(tmp_path, "1-1")
    assert old.load_latest({"app": Weights()}) is None
    assert save(old, 5).committed
    new = attempt(tmp_path, newer)
    resumed = new.load_latest({"app": Weights()})
    assert resumed is not None
    assert resumed.step == 5
    assert save(new, 6).committed
    told = save(old, 9)
    assert not told.committed
    assert f"attempt 1-1 is over: attempt {newer} has taken over" in told.failed
    assert committed(tmp_path) == ["step-00000006"]
    assert save(new, 7).committed


def test_row_40_an_older_attempt_does_not_begin(tmp_path: Path) -> None:
    attempt(tmp_path, "2-3").load_latest({"app": Weights()})
    with pytest.raises(CheckpointLoadError, match="attempt 2-2 is over: attempt 2-3 has taken over"):
        attempt(tmp_path, "2-2").load_latest({"app": Weights()})
    assert attempt(tmp_path, "2-3").load_latest({"app": Weights()}) is None, "the newest may open it again"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (commit, "hash_file"),
        (commit, "write_durably"),
        (layout, "free_name"),  # after the last look at the fence, before the rename
    ],
)
def test_row_40_taken_over_in_the_middle_of_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    """Whatever the newer attempt saw when it began is what there is: nothing appears afterwards."""
    old = attempt(tmp_path, "1-1")
    old.load_latest({"app": Weights()})
    assert save(old, 5).committed
    original, seen = getattr(module, name), []

    def first_another_begins(*arguments: Any) -> Any:
        monkeypatch.setattr(module, name, original)
        new = attempt(tmp_path, "1-2")
        found = new.load_latest({"app": Weights()})
        new.tidy(60.0)
        seen.append(found and found.step)
        return original(*arguments)

    monkeypatch.setattr(module, name, first_another_begins)
    assert not save(old, 6).committed
    assert seen == [5]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".fence-1-2", "step-00000005"]


def test_row_68_removing_old_checkpoints_is_waited_for_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage on which it takes for ever: saves go on, the next attempt begins, and it all goes in the end."""
    begun, may_go = threading.Event(), threading.Event()

    def slow(path: Path) -> bool:
        begun.set()
        assert may_go.wait(60.0)
        return original(path)

    original = disk.remove_tree
    monkeypatch.setattr(disk, "remove_tree", slow)
    store = attempt(tmp_path, "1-1")
    try:
        for step in (1, 2, 3):
            assert save(store, step).pruned == ((step - 1,) if step > 1 else ())
        assert begun.wait(60.0)
        (tmp_path / layout.writing_name("1-1", 4)).mkdir()  # as a kill leaves it
        after = attempt(tmp_path, "1-2")
        loaded = after.load_latest({"app": Weights()})
        assert loaded is not None
        assert loaded.step == 3
        assert len([path for path in tmp_path.iterdir() if path.name.startswith(".pruned-")]) == 3
    finally:
        may_go.set()
    for one in (store, after):
        one.tidy(60.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".fence-1-2", "step-00000003"]


def test_row_64_parts_of_two_saves_of_one_step_are_never_read_together(tmp_path: Path) -> None:
    """The same step saved again by a later attempt, as after a change of the plan, and its files mixed with the old
    ones: as on an object store that shows some of them late."""
    save(attempt(tmp_path, "1-1"), 4)
    first, second = attempt(tmp_path, "1-2"), attempt(tmp_path, "1-3")
    for store, value in ((first, 5.0), (second, 5.5)):
        store.save(5, {"app": Weights(value)}, {}, asynchronous=False, protected=(4, 5))
    assert committed(tmp_path) == ["step-00000005-2", "step-00000005", "step-00000004"]
    (shard,) = (tmp_path / "step-00000005").glob("__*")
    (tmp_path / "step-00000005-2" / shard.name).write_bytes(shard.read_bytes())
    weights = Weights()
    loaded = attempt(tmp_path, "1-4").load_latest({"app": weights})
    assert loaded is not None
    assert [skipped.name for skipped in loaded.skipped] == ["step-00000005-2"]
    assert (loaded.path.name, weights.value.tolist()) == ("step-00000005", [5.0] * 4)


def test_a_fence_is_the_newest_attempts() -> None:
    names = [".fence-1-2", ".fence-1-10", "step-00000001", ".attempt-1-11-step-3"]
    assert layout.fenced_by(names, "1-3") == "1-10"
    assert layout.fenced_by(names, "1-10") is None
    assert layout.fenced_by(names, "2-1") is None
    assert layout.older_fences(names, "1-10") == [".fence-1-2"]
