"""Damaged checkpoints: the previous good one is taken, and the reason is said on every rank."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.checkpoint import CheckpointLoadError

RunGang = Callable[..., list[Any]]
WORLD_SIZE = 2


def _save_three(rank: Any, trainee: Any) -> list[dict[str, Any]]:
    one = trainee(rank.world_size)
    store = rank.store()
    values = []
    for step in (1, 2, 3):
        one.train(1)
        store.save(step, {"app": one}, {"cursor": step}, True)
        values.append(one.values())
    store.wait()
    assert all(result.committed for result in store.drain())
    return values


def _load(rank: Any, trainee: Any) -> dict[str, Any]:
    one = trainee(rank.world_size, seed=5)
    untouched = one.values()
    store = rank.store(attempt="1-2")
    loaded = store.load_latest({"app": one})
    return {"loaded": loaded, "skipped": store.skipped, "values": one.values(), "untouched": untouched}


@pytest.fixture(scope="module")
def saved_once(
    run_gang: RunGang, tmp_path_factory: pytest.TempPathFactory, trainee: Any
) -> tuple[Path, list[dict[str, Any]]]:
    directory = tmp_path_factory.mktemp("whole") / "c"
    return directory, run_gang(WORLD_SIZE, directory, _save_three, trainee)[0]


@pytest.fixture
def saved(saved_once: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    """A directory with good checkpoints of steps 1, 2, 3, and the values they hold."""
    directory = tmp_path / "c"
    shutil.copytree(saved_once[0], directory)
    return directory, saved_once[1]


def flip_bytes(path: Path, count: int = 64) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    for position in range(middle, middle + count):
        content[position] ^= 0xFF
    path.write_bytes(content)


def _flip_64(newest: Path) -> str:
    flip_bytes(newest / "__1_0.distcp")
    return "checksum of __1_0.distcp differs from the manifest"


def _truncate(newest: Path) -> str:
    path = newest / "__0_0.distcp"
    size = path.stat().st_size
    os.truncate(path, size - 100)
    return f"truncated file __0_0.distcp: {size - 100} of {size} bytes"


def _delete_manifest(newest: Path) -> str:
    (newest / "manifest.json").unlink()
    return "manifest is missing"


def _garbage_manifest(newest: Path) -> str:
    (newest / "manifest.json").write_bytes(b"\x93garbage{")
    return "manifest is not JSON"


def _delete_shard(newest: Path) -> str:
    (newest / "__1_0.distcp").unlink()
    return "missing file __1_0.distcp"


def _flip_metadata(newest: Path) -> str:
    flip_bytes(newest / ".metadata", 8)
    return "checksum of .metadata differs from the manifest"


def _empty_directory(newest: Path) -> str:
    shutil.rmtree(newest)
    newest.mkdir()
    return "manifest is missing"


def _foreign_step(newest: Path) -> str:
    shutil.copy(newest.parent / "step-00000001" / "manifest.json", newest / "manifest.json")
    return "manifest describes step 1, the name another one"


def _newer_version(newest: Path) -> str:
    body = json.loads((newest / "manifest.json").read_text())
    (newest / "manifest.json").write_text(json.dumps({**body, "version": 2}))
    return "manifest version 2 is unknown"


DAMAGES: tuple[Callable[[Path], str], ...] = (
    _flip_64,
    _truncate,
    _delete_manifest,
    _garbage_manifest,
    _delete_shard,
    _flip_metadata,
    _empty_directory,
    _foreign_step,
    _newer_version,
)


def _load_each(rank: Any, trainee: Any, directories: list[Path]) -> list[dict[str, Any]]:
    told = []
    for rank.directory in directories:
        told.append(_load(rank, trainee))
    return told


@pytest.fixture(scope="module")
def damaged(
    run_gang: RunGang,
    saved_once: tuple[Path, list[dict[str, Any]]],
    tmp_path_factory: pytest.TempPathFactory,
    trainee: Any,
) -> tuple[list[str], list[list[dict[str, Any]]]]:
    """One directory a kind of damage, loaded by one gang: the reasons expected, and what each rank told of each."""
    root = tmp_path_factory.mktemp("damaged")
    directories, reasons = [], []
    for damage in DAMAGES:
        directories.append(root / damage.__name__)
        shutil.copytree(saved_once[0], directories[-1])
        reasons.append(damage(directories[-1] / "step-00000003"))
    return reasons, run_gang(WORLD_SIZE, root, _load_each, trainee, directories)


@pytest.mark.parametrize("case", range(len(DAMAGES)), ids=[damage.__name__[1:] for damage in DAMAGES])
def test_damage_falls_back_to_the_previous_good_one(
    damaged: tuple[list[str], list[list[dict[str, Any]]]],
    saved_once: tuple[Path, list[dict[str, Any]]],
    case: int,
) -> None:
    reasons, ranks = damaged
    for rank in ranks:
        told = rank[case]
        assert told["loaded"].step == 2
        assert told["loaded"].extras == {"cursor": 2}
        assert told["values"] == saved_once[1][1]
        ((name, reason),) = told["loaded"].skipped
        assert name == "step-00000003"
        assert reasons[case] in reason
        assert told["skipped"] == told["loaded"].skipped


def test_a_half_written_newer_directory_is_ignored_and_removed(
    run_gang: RunGang, saved: tuple[Path, list[dict[str, Any]]], trainee: Any
) -> None:
    directory, values = saved
    shutil.copytree(directory / "step-00000003", directory / ".attempt-1-1-step-4")
    (directory / ".attempt-1-1-step-4" / "manifest.json").unlink()
    newer = directory / ".attempt-1-3-step-9"
    newer.mkdir()
    for told in run_gang(WORLD_SIZE, directory, _load, trainee):
        assert told["loaded"].step == 3
        assert told["values"] == values[2]
        assert told["skipped"] == ()
    assert not (directory / ".attempt-1-1-step-4").exists()
    assert newer.exists(), "a newer attempt's unfinished work was removed"


def test_files_that_the_manifest_does_not_list_are_ignored(
    run_gang: RunGang, saved: tuple[Path, list[dict[str, Any]]], trainee: Any
) -> None:
    directory, values = saved
    (directory / "step-00000003" / "__7_0.distcp").write_bytes(b"not ours")
    (directory / "README").write_text("nor this")
    told = run_gang(WORLD_SIZE, directory, _load, trainee)[0]
    assert told["loaded"].step == 3
    assert told["values"] == values[2]


def test_without_a_good_one_nothing_is_loaded_and_every_reason_told(
    run_gang: RunGang, saved: tuple[Path, list[dict[str, Any]]], trainee: Any
) -> None:
    directory, _ = saved
    _flip_64(directory / "step-00000001")
    _truncate(directory / "step-00000002")
    _delete_manifest(directory / "step-00000003")
    for told in run_gang(WORLD_SIZE, directory, _load, trainee):
        assert told["loaded"] is None
        assert [name for name, _ in told["skipped"]] == ["step-00000003", "step-00000002", "step-00000001"]
        assert told["values"] == told["untouched"]


def test_nothing_there_is_no_error(run_gang: RunGang, tmp_path: Path, trainee: Any) -> None:
    for told in run_gang(WORLD_SIZE, tmp_path / "never-made", _load, trainee):
        assert told["loaded"] is None
        assert told["skipped"] == ()


def _resume_and_save(rank: Any, trainee: Any) -> list[Any]:
    one = trainee(rank.world_size)
    store = rank.store(attempt="1-2", keep=2)
    loaded = store.load_latest({"app": one})
    for step in (2, 3):
        store.save(step, {"app": one}, {}, True)
    store.wait()
    return [loaded.step, *store.drain()]


def test_pruning_never_prefers_a_damaged_newer_one(
    run_gang: RunGang, saved: tuple[Path, list[dict[str, Any]]], trainee: Any
) -> None:
    directory, _ = saved
    _flip_64(directory / "step-00000003")
    _flip_64(directory / "step-00000002")
    resumed, second, third = run_gang(WORLD_SIZE, directory, _resume_and_save, trainee)[0]
    assert resumed == 1
    assert second.path.name == "step-00000002-2"
    assert second.pruned == (3, 2), "with two good ones of keep=2, the damaged ones go"
    assert third.path.name == "step-00000003"
    assert third.pruned == (1,)


class Refuser:
    """A state whose loading fails when it meets the steps in `bad`; it stands for a model that cannot take a state."""

    def __init__(self, bad: set[int], rank: int) -> None:
        self.bad, self.rank, self.step = bad, rank, 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["step"] in self.bad and self.rank == 1:
            raise RuntimeError(f"step {state['step']} is not for me")
        self.step = state["step"]


def _save_and_refuse(rank: Any, bad: set[int]) -> Any:
    one = Refuser(bad, rank.rank)
    store = rank.store()
    for one.step in (1, 2):
        store.save(one.step, {"app": one}, {}, False)
    try:
        loaded = store.load_latest({"app": one})
    except CheckpointLoadError as error:
        return str(error)
    return loaded, one.step


def test_a_verified_one_that_cannot_be_loaded_is_skipped(run_gang: RunGang, tmp_path: Path) -> None:
    for loaded, step in run_gang(WORLD_SIZE, tmp_path / "c", _save_and_refuse, {2}):
        assert (loaded.step, step) == (1, 1)
        assert (
            "rank 1 could not take its state: RuntimeError: step 2 is not for me" in loaded.skipped[0].reason
        )


def test_a_half_loaded_state_is_an_error_not_a_fresh_start(run_gang: RunGang, tmp_path: Path) -> None:
    for told in run_gang(WORLD_SIZE, tmp_path / "c", _save_and_refuse, {1, 2}):
        assert "could be loaded whole" in told


def _load_other_shape(rank: Any) -> Any:
    import torch

    class Wide:
        def __init__(self, columns: int) -> None:
            self.weight = torch.full((3, columns), 2.0)

        def state_dict(self) -> dict[str, Any]:
            return {"weight": self.weight}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.weight = state["weight"]

    store = rank.store()
    store.save(1, {"app": Wide(4)}, {}, False)
    other = Wide(5)
    return store.load_latest({"app": other}), store.skipped, bool((other.weight == 2.0).all())


def test_another_models_checkpoint_is_skipped_and_changes_nothing(run_gang: RunGang, tmp_path: Path) -> None:
    for loaded, skipped, unchanged in run_gang(WORLD_SIZE, tmp_path / "c", _load_other_shape):
        assert loaded is None
        assert unchanged
        assert "size" in skipped[0].reason.lower()
