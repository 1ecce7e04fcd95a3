"""`atoll verify`: what it prints and with which code it ends."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from actors.training.local_gang import RankFailedError, run_ranks
from actors.training.verify import StepDifference, Verdict
from atoll.cli import main
from atoll.cli.application import application
from atoll.cli.verify import _as_json
from orchestrator.spec.sections import Precision

JOB = {
    "name": "small",
    "model": {"layers": 2, "hidden": 32, "heads": 2, "kv_heads": 2, "ffn_hidden": 32},
    "parallelism": {"dp": 2},
    "training": {"steps": 9, "global_batch": 2, "sequence_length": 16},
}


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB))
    return path


def test_equal(job_file: Path) -> None:
    done = CliRunner().invoke(application, ["verify", str(job_file), "--steps", "2"])
    assert done.exit_code == 0, done.output
    assert "small: dp2 (2 ranks) against one process, 2 steps, fp64" in done.output
    assert "equal within 1e-09" in done.output


def test_json(job_file: Path) -> None:
    done = CliRunner().invoke(application, ["verify", str(job_file), "--steps", "1", "--json"])
    answer = json.loads(done.stdout)
    assert (answer["equal"], answer["first"], answer["precision"]) == (True, None, "fp64")
    assert answer["final_weights"]["head.weight"] <= 1e-12


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parallelism": {"dp": 3}}, "training.global_batch"),
        ({"parallelism": {"dp": 128}, "training": JOB["training"] | {"global_batch": 128}}, "at most 64"),
        ({"data": {"source": "/nowhere/text.txt"}}, "/nowhere/text.txt"),
    ],
    ids=["wrong-job", "too-many-ranks", "no-such-data"],
)
def test_input_is_refused_with_code_2(
    tmp_path: Path,
    change: dict[str, object],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB | change))
    monkeypatch.setattr("sys.argv", ["atoll", "verify", str(path)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_the_example_of_an_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    example = Path(__file__).parents[2] / "examples" / "own_model"
    monkeypatch.syspath_prepend(str(example))
    done = CliRunner().invoke(application, ["verify", str(example / "own-model.yaml"), "--steps", "2"])
    assert done.exit_code == 0, done.output
    assert "own-model: tp2 pp2 dp2 (8 ranks) against one process, 2 steps, fp64" in done.output
    assert "equal within 1e-09" in done.output


def test_a_difference_that_is_no_number_is_null_in_json() -> None:
    step = StepDifference(1, math.inf, 0.5, {"head.weight": math.inf})
    answer = _as_json(Verdict(Precision.FP64, 1e-9, (step,)))
    assert json.loads(json.dumps(answer, allow_nan=False)) == {
        "equal": False,
        "precision": "fp64",
        "tolerance": 1e-9,
        "loss": {"difference": None, "where": "step 1"},
        "gradient_norm": {"difference": 0.5, "where": "step 1"},
        "final_weights": {"head.weight": None},
        "first": {"step": 1, "what": "loss"},
    }


def test_weights_that_are_not_there_are_refused_with_code_2(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB | {"model": JOB["model"] | {"weights": str(tmp_path / "none")}}))
    done = CliRunner().invoke(application, ["verify", str(path)])
    assert done.exit_code == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("error: model.weights: ")
    assert line.endswith("none/config.json cannot be read on this machine: is not there (rank 0)")


def test_a_reason_of_several_lines_is_told_on_one() -> None:
    def program(rank: int, store: Any) -> None:
        raise RuntimeError("first line\nsecond line")

    with pytest.raises(RankFailedError) as failed:
        run_ranks(1, program, deadline_s=60)
    [failure] = failed.value.failures.values()
    assert (failure.reason, failure.refused) == ("RuntimeError: first line second line", False)
    assert "Traceback" in failure.traceback


@pytest.mark.parametrize("timeout", ["nan", "inf", "1e300", "0"])
def test_a_timeout_that_is_none_is_refused(job_file: Path, timeout: str) -> None:
    done = CliRunner().invoke(application, ["verify", str(job_file), "--timeout", timeout])
    assert done.exit_code == 2, done.output
    assert "--timeout" in done.output


@pytest.mark.parametrize(
    ("dies", "told"),
    [
        (lambda: os._exit(7), "the process ended with code 7 without an answer"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "the process was ended by SIGKILL without an answer"),
    ],
    ids=["exit", "signal"],
)
def test_how_a_rank_died_is_told(dies: Callable[[], None], told: str) -> None:
    with pytest.raises(RankFailedError) as failed:
        run_ranks(1, lambda rank, store: dies(), deadline_s=60)
    assert failed.value.failures[0].reason == told
