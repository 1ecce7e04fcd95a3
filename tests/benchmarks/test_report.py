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


def test_the_steady_rate_leaves_the_first_steps_out(load: object) -> None:
    overhead = load("overhead")  # type: ignore[operator]
    slow = [overhead.Step(step, 100, 9.0, 2.0) for step in (1, 2)]
    fast = [overhead.Step(step, 100, 0.5, 1.0) for step in (4, 3)]
    turn = overhead.steady("torchrun", [*fast, *slow], skip=2, total=4, load=0.0)
    assert turn.tokens_per_s == 200.0 / 1.0
    assert turn.median_step_s == 0.5
    assert turn.last_loss == 1.0


def test_missing_or_doubled_steps_are_no_rate(load: object) -> None:
    overhead = load("overhead")  # type: ignore[operator]
    steps = [overhead.Step(step, 100, 0.5, 1.0) for step in (1, 2, 2)]
    with pytest.raises(ValueError, match="expected each of 1 to 3 once"):
        overhead.steady("atoll", steps, skip=0, total=3, load=0.0)
