"""The verdict line, the exit code and the result file of a benchmark."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> object:
    """Imports a benchmark as `python benchmarks/NAME.py` sees it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def loaded(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return loaded


@pytest.mark.parametrize(
    ("value", "at_least", "code"),
    [
        (0.98, True, 0),
        (0.9799, True, 1),
        (0.7, False, 0),
        (0.9801, False, 1),
        (math.nan, True, 1),
        (math.nan, False, 1),
    ],
)
def test_the_last_line_and_the_exit_code(
    load: object, tmp_path: Path, capsys: pytest.CaptureFixture[str], value: float, at_least: bool, code: int
) -> None:
    report = load("report")  # type: ignore[operator]
    verdict = report.Verdict("overhead", "ratio", value, 0.98, at_least)
    assert report.conclude(verdict, setting={"pairs": 5}, samples=[1, 2], directory=tmp_path) == code
    assert capsys.readouterr().out.splitlines()[-1] == f"overhead ratio {value:.4g} (bar 0.98)"
    written = json.loads((tmp_path / "overhead.json").read_text())
    assert written["verdict"]["met"] is (code == 0)
    assert written["samples"] == [1, 2]
    assert written["machine"]["cores"] >= 1
    assert written["versions"]["torch"]


def test_a_turns_rate_lies_between_its_first_and_its_last_step(load: object) -> None:
    turns = load("turns")  # type: ignore[operator]
    turn = turns.Turn("torchrun", 10.0, 16.0)
    steps = [turns.Step(n, at, 100, 1.0) for n, at in enumerate((9.9, 11.0, 12.0, 15.0, 16.1), start=1)]
    found = turns.rate(turn, list(reversed(steps)))
    assert (found.steps, found.seconds, found.tokens_per_s) == (2, 4.0, 50.0)


def test_a_turn_with_too_few_steps_has_no_rate(load: object) -> None:
    turns = load("turns")  # type: ignore[operator]
    steps = [turns.Step(n, 10.0 + n, 100, 1.0) for n in (1, 2)]
    with pytest.raises(ValueError, match="atoll ended 2 steps in a turn, too few"):
        turns.rate(turns.Turn("atoll", 10.0, 16.0), steps)


def test_sides_that_train_differently_are_not_compared(load: object) -> None:
    overhead = load("overhead")  # type: ignore[operator]
    ours, theirs = ([overhead.Step(3, 1.0, 100, loss)] for loss in (2.0, 2.0001))
    assert overhead.check_same_losses(ours, ours) == 1
    with pytest.raises(RuntimeError, match=r"step 3 has loss 2\.0001 under torchrun and 2\.0 under Atoll"):
        overhead.check_same_losses(theirs, ours)


def test_what_measuring_costs_is_measured_on_engines_that_differ_in_that_alone(load: object) -> None:
    """Both sides take their turns and train the same, or `measure` raises; so it does when one side counts nothing."""
    measuring = load("measuring")  # type: ignore[operator]
    (sample,) = measuring.measure(pairs=1, steps=1, warm_up=1)
    assert sorted(sample) == ["measured_s", "plain_s"]
    assert all(seconds > 0 for seconds in sample.values())
