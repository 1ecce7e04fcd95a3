"""`atoll data prepare` on the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.training.data.token_file import open_token_file
from tests.atoll.conftest import Ran, wait_for

Atoll = Callable[..., Ran]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"document {i}"}) + "\n" for i in range(40)))
    return path


def test_files_become_a_directory_of_tokens(
    atoll: Atoll, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.jsonl").write_text("")
    ran = atoll(
        "data", "prepare", "a.jsonl", "b.jsonl", "--tokenizer", "bytes", "--out", "out", "--workers", "1"
    )
    assert ran.code == 0, ran.err
    assert f"{tmp_path}/out: 40 documents, 470 tokens (uint16), vocabulary 256" in ran.out
    assert ran.err == "1 empty files\n"
    # "document 0" to "document 9" have 10 bytes, the other thirty 11, each one end.
    assert open_token_file(str(tmp_path / "out"), field="F").meta.tokens == 10 * 11 + 30 * 12
    again = atoll("data", "prepare", "a.jsonl", "b.jsonl", "--tokenizer", "bytes", "--out", "out", "--json")
    answer = json.loads(again.out)
    assert (answer["directory"], answer["documents"], answer["empty_files"]) == (f"{tmp_path}/out", 40, 1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("/nowhere.jsonl", "--tokenizer", "bytes"), "SOURCE: no file '/nowhere.jsonl' on this node"),
        (("a.jsonl", "--tokenizer", "bpe"), "--vocab-size: is required with the tokenizer bpe"),
        (
            ("a.jsonl", "--tokenizer", "bytes", "--vocab-size", "300"),
            "--vocab-size: is for the tokenizer bpe; leave it out with bytes",
        ),
        (
            ("a.jsonl", "--tokenizer", "/no.json"),
            "--tokenizer: tokenizer '/no.json' cannot be read: No such file",
        ),
        (
            ("ftp://h/a", "--tokenizer", "bytes"),
            "SOURCE: 'ftp://h/a' has the scheme ftp; must be one of file, s3",
        ),
        (("a.gz", "--tokenizer", "bytes"), "SOURCE: 'a.gz' is compressed"),
        (
            ("a.jsonl", "--tokenizer", "bytes", "--on-bad-line", "x"),
            "--on-bad-line: must be fail or skip, not 'x'",
        ),
        (
            ("a.jsonl", "--tokenizer", "bytes", "--field", "body"),
            "a.jsonl, line 1 has no field 'body' (it has text)",
        ),
    ],
)
def test_wrong_arguments_are_named(
    atoll: Atoll,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = atoll("data", "prepare", *arguments, "--out", "out", "--workers", "1")
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "command", [("data", "prepare", "a.jsonl", "--tokenizer", "bytes"), ("export", "job")]
)
def test_what_is_written_goes_into_a_directory_not_to_a_url(
    atoll: Atoll, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = atoll(*command, "--out", "s3://bucket/out")
    assert (ran.code, ran.out) == (2, "")
    assert "--out" in ran.err
    assert "s3://bucket/out is a URL; must be a directory" in " ".join(ran.err.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_help(atoll: Atoll) -> None:
    assert "prepare" in atoll("data", "--help").out
    assert "--tokenizer" in atoll("data", "prepare", "--help").out


def test_interrupted_it_says_that_it_can_go_on_and_leaves_no_worker(source: Path, tmp_path: Path) -> None:
    source.write_text(source.read_text() * 40_000)  # 26 MB of small documents: some seconds of work
    options = ("--tokenizer", "bytes", "--workers", "1", "--out", str(tmp_path / "out"))
    process = subprocess.Popen(
        [sys.executable, "-m", "atoll", "data", "prepare", str(source), *options],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    claims = tmp_path / "out.preparing" / "claims"
    wait_for("a shard is being worked on", lambda: list(claims.glob("0*.claim")))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "what is finished is kept" in err
    wait_for("no process of it is left", lambda: not _group_lives(process.pid))


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
