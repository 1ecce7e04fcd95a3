"""`atoll export` and `atoll generate` on checkpoints that a rank program wrote."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from atoll.cli.application import application
from atoll.cli.generate import pieces, shown
from atoll.cli.messages import exit_code
from atoll.cli.model import ModelDirectoryError
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.spec import parse_spec
from orchestrator.store import checkpoints, jobs

Atoll = Callable[..., Any]
NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)

STEPS = 30
TEXT = "the cat sat on the mat. " * 400


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """(job file, its checkpoint directory): a tiny model that has learned one sentence; checkpoints every ten steps."""
    folder = tmp_path_factory.mktemp("trained")
    text = folder / "text.txt"
    text.write_text(TEXT)
    job = {
        "name": "trained",
        "model": {"layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "ffn_hidden": 64},
        "training": {
            "steps": STEPS,
            "global_batch": 8,
            "sequence_length": 48,
            "optimizer": {"learning_rate": 0.03},
        },
        "data": {"source": str(text), "tokenizer": "bpe", "vocab_size": 272},
        "checkpoint": {"every": 10},
    }
    (folder / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-m", "actors.training", str(folder / "job.json"), "--directory", str(folder)]
    subprocess.run(
        [*command, "--threads", "1"], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=240
    )
    return job, folder / "checkpoints"


def insert(server: Any, job: dict[str, Any], directory: Path, steps: tuple[int, ...]) -> str:
    """A job that has told of checkpoints in `directory`."""
    with server.database.write() as session:
        row = jobs.insert(session, parse_spec(job), now=NOW).job
        jobs.set_state(session, row.id, JobState.SUCCEEDED, Reason.COMPLETED, "", now=NOW)
        for step in steps:
            path = str(directory / f"step-{step:08d}")
            checkpoints.commit(session, row.id, step=step, attempt=1, path=path, size_bytes=1, at=NOW)
        return row.id


@pytest.fixture(scope="module")
def job_id(server: Any, trained: tuple[dict[str, Any], Path]) -> str:
    return insert(server, *trained, (10, 20, 30))


def test_export_loads_with_transformers_and_continues_the_text(
    atoll: Atoll, job_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    ran = atoll("export", job_id, "--out", str(out), "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert (told["step"], told["tokenizer"]) == (STEPS, True)
    assert sorted(told["files"]) == sorted(path.name for path in out.iterdir())
    assert not list(tmp_path.glob(".*"))  # nothing left aside

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, loading = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(loading.values()), loading
    tokenizer = AutoTokenizer.from_pretrained(out)
    prompt = tokenizer("the cat", return_tensors="pt")
    text = tokenizer.decode(model.generate(**prompt, max_new_tokens=12, do_sample=False)[0])
    assert text.startswith("the cat sat on the mat.")
    printed = CliRunner().invoke(application, ["model", str(out)])
    sections = yaml.safe_load(printed.output)
    again = parse_spec({"name": "again", "training": {"steps": 1}} | sections)
    assert again.model.weights == str(out)
    assert (again.model.layers, again.data.vocab_size) == (1, 272)
    ours = atoll("generate", job_id, "--prompt", "the cat", "--tokens", "12", "--temperature", "0")
    assert ours.out == text + "\n"


@pytest.mark.parametrize(
    "verb", [("export", "--out", "new"), ("generate", "--prompt", "the")], ids=["export", "generate"]
)
def test_a_model_of_the_jobs_own_is_refused(
    atoll: Atoll, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    own = {"name": "own", "model": {"import": "mine:build"}, "training": {"steps": 10}}
    command, *options = verb
    ran = atoll(command, insert(server, own, tmp_path, (10,)), *options)
    assert ran.code != 0
    assert "own trains a module of its own (model.import)" in ran.err
    assert not (tmp_path / "new").exists()


def test_generate_is_a_function_of_the_seed(atoll: Atoll, job_id: str) -> None:
    def run(seed: int) -> Any:
        arguments = ("--prompt", "the", "--tokens", "20", "--temperature", "2", "--seed", str(seed), "--json")
        ran = atoll("generate", job_id, *arguments)
        assert ran.code == 0, ran.err
        return json.loads(ran.out)

    first = run(1)
    assert first == run(1)
    assert first["tokens"] != run(2)["tokens"]
    assert (first["prompt"], first["step"]) == ("the", STEPS)
    assert first["text"]


def test_a_named_step(atoll: Atoll, job_id: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    ran = atoll("export", job_id, "--out", str(tmp_path / "out"), "--step", "20", "--dtype", "bf16", "--json")
    assert sorted(json.loads(ran.out)["files"]) == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert json.loads(ran.out)["step"] == 20
    assert json.loads((tmp_path / "out" / "config.json").read_text())["torch_dtype"] == "bfloat16"
    refused = atoll("export", job_id, "--out", str(tmp_path / "other"), "--step", "7")
    assert refused.code == 2
    assert "step 7 was never written; there are those of steps 30, 20, 10" in refused.err


def test_a_damaged_checkpoint_is_passed_over_or_named(
    server: Any, atoll: Atoll, trained: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    job, directory = trained
    copy = tmp_path / "checkpoints"
    shutil.copytree(directory, copy)
    shard = next((copy / "step-00000030").glob("*.distcp"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    damaged = insert(server, job, copy, (10, 20, 30))
    older = atoll("export", damaged, "--out", str(tmp_path / "out"), "--json")
    assert (older.code, json.loads(older.out)["step"]) == (0, 20)
    assert "step-00000030 passed over: checksum of" in older.err
    refused = atoll("generate", damaged, "--prompt", "x", "--step", "30")
    assert refused.code == 1
    assert "checksum" in refused.err


def test_what_is_not_there(
    server: Any, atoll: Atoll, trained: tuple[dict[str, Any], Path], job_id: str, tmp_path: Path
) -> None:
    job, _ = trained
    out = str(tmp_path / "out")
    assert atoll("export", "no-such-job", "--out", out).code == 2
    none = atoll("export", insert(server, job, tmp_path, ()), "--out", out)
    assert (none.code, "has no checkpoint" in none.err) == (1, True)
    away = insert(server, job, tmp_path / "not-mounted", (10,))
    for verb in (("export", away, "--out", out), ("generate", away, "--prompt", "x")):
        unreachable = atoll(*verb)
        assert unreachable.code == 3
        assert f"{tmp_path / 'not-mounted'}, which this machine cannot read" in unreachable.err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    full = atoll("export", job_id, "--out", str(tmp_path / "full"))
    assert (full.code, "give a new or empty directory" in full.err) == (2, True)
    assert not Path(out).exists()


def test_a_tokenizer_whose_text_is_gone(
    server: Any, atoll: Atoll, trained: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    job, directory = trained
    data = {**job["data"], "source": str(tmp_path / "gone.txt")}
    moved = insert(server, {**job, "data": data}, directory, (30,))
    exported = atoll("export", moved, "--out", str(tmp_path / "out"), "--json")
    assert (exported.code, json.loads(exported.out)["tokenizer"]) == (0, False)
    assert "no tokenizer written: data.source: no file" in exported.err
    generated = atoll("generate", moved, "--prompt", "the")
    assert (generated.code, "tokenizer cannot be had" in generated.err) == (3, True)


def test_a_model_that_cannot_be_trained_here(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_act": "gelu"}')
    error = CliRunner().invoke(application, ["model", str(tmp_path)]).exception
    assert isinstance(error, ModelDirectoryError)
    assert exit_code(error) == 2
    assert "\n  hidden_act is 'gelu'; only 'silu' is computed here" in str(error)
    assert "\n  vocab_size is None" in str(error)


def test_wrong_options(atoll: Atoll, job_id: str) -> None:
    assert atoll("generate", job_id, "--prompt", "").code == 2
    assert atoll("generate", job_id, "--prompt", "x", "--temperature", "nan").code == 2
    assert atoll("generate", job_id, "--prompt", "x", "--tokens", "0").code == 2


class FakeTokenizer:
    """A token is a byte."""

    def decode(self, ids: Any) -> str:
        return bytes(ids.tolist()).decode(errors="replace")


def test_text_grows_by_whole_characters() -> None:
    text = "é€x"
    assert list(pieces(FakeTokenizer(), iter(text.encode()))) == ["é", "€", "x"]  # type: ignore[arg-type]
    assert list(pieces(FakeTokenizer(), iter(text.encode()[:-2]))) == ["é", "\ufffd"]  # type: ignore[arg-type]


def test_a_model_cannot_drive_the_terminal() -> None:
    assert shown("a\x1b[2Jb\n\tc\x9b") == "a\ufffd[2Jb\n\tc\ufffd"
