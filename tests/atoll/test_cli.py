"""The command line against a real API process: answers, exit codes, JSON, and what it says when things are wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.markup import escape

from atoll.cli.connection import ANSWER_RETRY_S, FOLLOW_RETRY_S
from atoll.cli.job_file import JobFileError, read_job
from atoll.cli.messages import standard_error
from atoll.cli.output import standard_output
from atoll.client import AtollClient
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.store import jobs

Atoll = Callable[..., Any]


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text("name: from-a-file\ntraining:\n  steps: 10\n")
    return path


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def test_submit_says_the_id(server: Any, atoll: Atoll, job_file: Path) -> None:
    ran = atoll("submit", str(job_file))
    assert ran.code == 0
    job_id, name, state = ran.out.split()
    assert (name, state) == ("from-a-file", "queued")
    with server.database.read() as session:
        assert jobs.get(session, job_id).total_steps == 10


def test_submit_json_is_one_document(server: Any, atoll: Atoll, job_file: Path) -> None:
    ran = atoll("submit", str(job_file), "--json")
    assert json.loads(ran.out)["name"] == "from-a-file"


def test_submit_reads_standard_input(server: Any, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "atoll", "submit", "-", "--json", "--url", server.url],
        input=b'{"name": "from-a-pipe", "training": {"steps": 3}}',
        capture_output=True,
        check=True,
        cwd=tmp_path,
    )
    assert json.loads(ran.stdout)["name"] == "from-a-pipe"


def test_submit_says_everything_wrong_with_the_line_of_each(
    server: Any, atoll: Atoll, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: Wrong_Name\ntraining:\n  steps: many\nparalelism:\n  tp: 2\n")
    ran = atoll("submit", str(wrong))
    assert ran.code == 2
    assert ran.out == ""
    assert "3 violations" in ran.err
    for told in ("name (line 1)", "training.steps (line 3)", "paralelism (line 4)"):
        assert told in ran.err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "a job file is a mapping"),
        (b"- a\n- b\n", "not a list"),
        (b"name: [unclosed\n", "line 2, column 1: not valid YAML"),
        (b"name: a\nname: b\n", "line 2, column 1: not valid YAML: the key 'name' occurs twice"),
        (b'{"name": "a", "name": "b"}', "the key 'name' occurs twice"),
        (b"\xff\xfe\x00", "no UTF-8"),
        (b"a: " + b"x" * (1 << 20), "larger than"),
        (
            b"a: &a [x, x]\nb: &b [*a, *a]\n"
            + b"".join(
                b"%c: &%c [*%c, *%c, *%c, *%c]\n" % (n, n, n - 1, n - 1, n - 1, n - 1)
                for n in range(ord("c"), ord("n"))
            ),
            "aliases",
        ),
        (b"name: &loop [*loop]\n", "recursive"),
        (b"name: !!python/object:os.system x\n", "tags such as"),
        (b"base: &base {steps: 1}\ntraining: {<<: *base}\n", "training.<< (line 2)"),
        (b"[" * 20_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_job(atoll: Atoll, tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(content)
    ran = atoll("submit", str(path), "--url", "http://127.0.0.1:1")
    assert ran.code == 2
    assert told in ran.err
    assert str(path) in ran.err


def test_a_file_means_the_same_here_as_on_the_server(tmp_path: Path) -> None:
    """The YAML of the spec (1.2): other readers make text of `1e-3`, a date of a name and `false` of `no`."""
    path = tmp_path / "file.yaml"
    path.write_text("name: 2026-02-03\ntraining: {steps: 1, clip_norm: 1e-3}\ndata: {source: no}\n")
    with pytest.raises(JobFileError) as refused:
        read_job(str(path))
    assert [(flaw.field, flaw.value) for flaw in refused.value.violations] == [("data.source", "no")]
    path.write_text(path.read_text().replace("source: no", "source: /no"))
    assert read_job(str(path)) == {
        "name": "2026-02-03",
        "training": {"steps": 1, "clip_norm": 0.001},
        "data": {"source": "/no"},
    }


@pytest.mark.parametrize(("path", "told"), [("/no/such/file", "No such file"), ("/", "Is a directory")])
def test_a_path_that_cannot_be_read(atoll: Atoll, path: str, told: str) -> None:
    ran = atoll("submit", path)
    assert (ran.code, told in ran.err) == (2, True)


def test_wait_gives_0_for_a_job_that_succeeds(server: Any, atoll: Atoll, job_file: Path) -> None:
    assert ended_as(server, atoll, job_file, JobState.SUCCEEDED).code == 0


def test_wait_gives_1_for_a_job_that_fails_and_says_why(server: Any, atoll: Atoll, job_file: Path) -> None:
    ran = ended_as(server, atoll, job_file, JobState.FAILED)
    assert ran.code == 1
    assert "Traceback of rank 3" in ran.err


def test_wait_gives_1_for_a_job_that_is_cancelled(server: Any, atoll: Atoll, job_file: Path) -> None:
    assert ended_as(server, atoll, job_file, JobState.CANCELLED).code == 1


def ended_as(server: Any, atoll: Atoll, job_file: Path, state: JobState) -> Any:
    """`submit --wait` of a job that somebody moves to `state` once it is there."""
    name = unique("waited")
    job_file.write_text(f"name: {name}\ntraining:\n  steps: 10\n")

    def end() -> None:
        from tests.atoll.conftest import NOW, wait_for

        def found() -> str | None:
            with server.database.read() as session:
                items = jobs.page(session, limit=1, name_contains=name).items
                return items[0].id if items else None

        job_id = wait_for("the job is there", found)
        with server.database.write() as session:
            jobs.set_state(session, job_id, state, Reason.NO_PROGRESS, "Traceback of rank 3", now=NOW)

    ender = threading.Thread(target=end)
    ender.start()
    ran = atoll("submit", str(job_file), "--wait")
    ender.join()
    return ran


def test_interrupted_wait_leaves_the_job_running(server: Any, job_file: Path, tmp_path: Path) -> None:
    name = unique("interrupted")
    job_file.write_text(f"name: {name}\ntraining:\n  steps: 10\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "atoll", "submit", str(job_file), "--wait", "--url", server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
    )
    assert process.stdout is not None
    while "submitted Job" not in process.stdout.readline():  # the event: it follows the stream now
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "goes on" in err
    with server.database.read() as session:
        assert jobs.page(session, limit=1, name_contains=name).items[0].state == "queued"


def test_list_shows_jobs_and_filters(server: Any, atoll: Atoll) -> None:
    name = unique("listed")
    server.insert(name, JobState.FAILED, Reason.NO_PROGRESS)
    assert name in atoll("list").out
    assert name in atoll("list", "--state", "failed").out
    assert name not in atoll("list", "--state", "running").out
    found = json.loads(atoll("list", "--name", name, "--json").out)
    assert [job["name"] for job in found["items"]] == [name]
    assert found["more"] is False


def test_list_limit_says_that_there_are_more(server: Any, atoll: Atoll) -> None:
    for _ in range(3):
        server.insert(unique("many"))
    ran = atoll("list", "--limit", "2", "--name", "many")
    assert len(ran.out.strip().splitlines()) == 3
    assert "--limit shows more" in ran.err


def test_status_by_id_prefix_and_name(server: Any, atoll: Atoll, finished: str) -> None:
    for reference in (finished, finished.upper(), "finished", finished[:-3]):
        ran = atoll("status", reference, "--json")
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["id"] == finished
    text = atoll("status", finished).out
    for told in ("succeeded", "100/100", "1.2500", "3.5000"):
        assert told in text


def test_a_name_of_several_jobs_is_refused_with_their_ids(server: Any, atoll: Atoll) -> None:
    name = unique("twin")
    ids = [server.insert(name), server.insert(name)]
    ran = atoll("status", name)
    assert ran.code == 2
    assert all(job_id in ran.err for job_id in ids)


@pytest.mark.parametrize(
    "reference", ["no-such-job", "ffffffff", str(uuid.UUID(int=7)), "../../etc", "", "a b"]
)
def test_an_unknown_job(server: Any, atoll: Atoll, reference: str) -> None:
    ran = atoll("status", reference)
    assert (ran.code, ran.out) == (2, "")
    assert "no job" in ran.err


def test_events_as_text_and_json(server: Any, atoll: Atoll, finished: str) -> None:
    assert "evaluated" in atoll("events", finished).out
    kinds = [event["kind"] for event in json.loads(atoll("events", finished, "--json").out)["items"]]
    assert kinds[0] == "submitted"
    assert "evaluated" in kinds


def test_followed_events_are_json_lines_and_end_with_the_job(
    server: Any, atoll: Atoll, finished: str
) -> None:
    ran = atoll("events", finished, "--follow", "--json")
    ids = [json.loads(line)["id"] for line in ran.out.splitlines()]
    assert ran.code == 0
    assert ids == list(range(1, len(ids) + 1))
    assert len(ids) >= 4


def test_logs(server: Any, atoll: Atoll, finished: str) -> None:
    from tests.atoll.conftest import LOG_TEXT

    assert atoll("logs", finished).out == LOG_TEXT
    assert atoll("logs", finished, "--follow").out == LOG_TEXT
    assert json.loads(atoll("logs", finished, "--json").out)["text"] == LOG_TEXT
    pieces = [json.loads(line) for line in atoll("logs", finished, "-f", "--json").out.splitlines()]
    assert "".join(piece["text"] for piece in pieces) == LOG_TEXT


@pytest.mark.parametrize(
    ("arguments", "budgets"),
    [
        (("events", "-f"), [ANSWER_RETRY_S, FOLLOW_RETRY_S]),
        (("logs", "-f"), [ANSWER_RETRY_S, FOLLOW_RETRY_S]),
        (("events",), [ANSWER_RETRY_S, ANSWER_RETRY_S]),
        (("logs",), [ANSWER_RETRY_S, ANSWER_RETRY_S]),
    ],
)
def test_who_follows_waits_for_a_control_plane_that_restarts(
    server: Any,
    atoll: Atoll,
    finished: str,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    budgets: list[float],
) -> None:
    """A wrong address is told soon all the same: the job is looked up first, with the short budget."""
    made: list[float] = []

    class FakeRecordingClient(AtollClient):
        def __init__(self, *given: Any, retry_budget_s: float) -> None:
            made.append(retry_budget_s)
            super().__init__(*given, retry_budget_s=retry_budget_s)

    monkeypatch.setattr("atoll.cli.connection.AtollClient", FakeRecordingClient)
    assert atoll(arguments[0], finished, *arguments[1:]).code == 0
    assert made == budgets


def test_logs_of_a_rank_that_is_not_there(server: Any, atoll: Atoll, finished: str) -> None:
    ran = atoll("logs", finished, "--rank", "12")
    assert ran.code == 2
    assert "rank" in ran.err


def test_an_attempt_cannot_be_followed(server: Any, atoll: Atoll, finished: str) -> None:
    assert atoll("logs", finished, "-f", "--attempt", "1").code == 2


def test_a_node_that_was_never_seen_is_not_cordoned(server: Any, atoll: Atoll) -> None:
    ran = atoll("cordon", "no-such-node", "--reason", "slow")
    assert ran.code == 2
    assert "There is no node no-such-node" in ran.err
    assert atoll("uncordon", "no-such-node").code == 0


def test_cancel(server: Any, atoll: Atoll, finished: str) -> None:
    job_id = server.insert(unique("cancelled"))
    assert "being cancelled" in atoll("cancel", job_id).out
    ran = atoll("cancel", finished)
    assert ran.code == 2
    assert "already ended" in ran.err


def test_plan_says_where(server: Any, atoll: Atoll, cluster: None, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("name: planned\ntraining: {steps: 1}\nparallelism: {dp: 2}\n")
    ran = atoll("plan", str(path))
    assert ran.code == 0, ran.err
    assert "fits now" in ran.out
    assert "n0" in ran.out


def test_plan_that_does_not_fit_gives_1_and_says_what_is_missing(
    server: Any, atoll: Atoll, cluster: None, tmp_path: Path
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("name: planned\ntraining: {steps: 1, global_batch: 64}\nparallelism: {dp: 64}\n")
    ran = atoll("plan", str(path), "--json")
    answer = json.loads(ran.out)
    assert (ran.code, answer["fits"], answer["ever"]) == (1, False, False)
    assert "64" in answer["refusal"]


@pytest.mark.parametrize(
    "verb", [("list",), ("status", "x"), ("events", "x"), ("logs", "x"), ("cancel", "x")]
)
def test_no_server_gives_3(atoll: Atoll, verb: tuple[str, ...]) -> None:
    ran = atoll(*verb, "--url", "http://127.0.0.1:9")
    assert (ran.code, ran.out) == (3, "")
    assert "no answer from http://127.0.0.1:9" in ran.err
    assert "Traceback" not in ran.err


def test_a_wrong_setting_in_the_environment_gives_2(atoll: Atoll, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOLL_PORT", "many")
    ran = atoll("list")
    assert (ran.code, ran.out) == (2, "")
    assert "ATOLL_PORT is 'many'" in ran.err


@pytest.mark.parametrize("url", ["127.0.0.1:8750", "ftp://host", "http://", "http://[::1", "", "nonsense"])
def test_a_wrong_url_gives_2(atoll: Atoll, url: str) -> None:
    ran = atoll("list", "--url", url or " ")
    assert ran.code == 2
    assert "URL" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("list", "--state", "dead"),
        ("list", "--limit", "0"),
        ("logs",),
        ("logs", "x", "--rank", "-1"),
    ],
)
def test_wrong_usage_gives_2(atoll: Atoll, arguments: tuple[str, ...]) -> None:
    ran = atoll(*arguments)
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize("content", [None, "", "two words", "línea"])
def test_a_wrong_token_file_gives_2(atoll: Atoll, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    ran = atoll("list", "--token-file", str(path))
    assert ran.code == 2
    assert "token file" in ran.err


def test_url_comes_from_the_environment(server: Any, atoll: Atoll, monkeypatch: pytest.MonkeyPatch) -> None:
    name = unique("environment")
    server.insert(name)
    monkeypatch.setenv("ATOLL_URL", server.url)
    ran = subprocess.run(
        [sys.executable, "-m", "atoll", "list", "--name", name], capture_output=True, text=True, check=True
    )
    assert name in ran.stdout


def test_a_reader_that_leaves_early_sees_no_traceback(server: Any, finished: str) -> None:
    for _ in range(60):
        server.insert(unique("pipe"))
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [sys.executable, "-m", "atoll", "list", "--url", server.url],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert "Traceback" not in ran.stderr
    assert "Exception" not in ran.stderr


@pytest.mark.parametrize("columns", ["20", "40", "80", "200"])
def test_a_terminal_of_any_width(server: Any, finished: str, columns: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", TERMINAL, "list", "--url", server.url],
        env={**os.environ, "COLUMNS": columns, "TERM": "xterm"},
        capture_output=True,
        text=True,
        check=True,
    )
    shown = re.sub(r"\x1b\[[0-9;]*m", "", ran.stdout)
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= int(columns)


TERMINAL = "import sys; sys.stdout.isatty = lambda: True; from atoll.cli import main; main()"


def test_no_color_is_respected(server: Any, finished: str) -> None:
    coloured, plain = (
        subprocess.run(
            [sys.executable, "-c", TERMINAL, "list", "--url", server.url],
            env={**os.environ, "TERM": "xterm-256color", **extra},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for extra in ({"FORCE_COLOR": "1"}, {"FORCE_COLOR": "1", "NO_COLOR": "1"})
    )
    yellow = "\x1b[33m"  # of `queued`
    assert yellow in coloured
    assert yellow not in plain


def test_colons_in_what_others_wrote_make_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    said = "KeyError: :boom: at 10.0.0.1:abc:"
    standard_output().print(escape(said))
    standard_error().print(escape(said))
    shown = capsys.readouterr()
    assert (shown.out.strip(), shown.err.strip()) == (said, said)


def test_version(atoll: Atoll) -> None:
    ran = atoll("version", "--json")
    assert set(json.loads(ran.out)) == {"atoll", "python", "ray", "torch"}


@pytest.mark.parametrize(
    "verb",
    [
        "serve",
        "submit",
        "list",
        "status",
        "logs",
        "events",
        "cancel",
        "cordon",
        "uncordon",
        "plan",
        "demo",
        "migrate",
        "version",
    ],
)
def test_every_verb_has_help(atoll: Atoll, verb: str) -> None:
    ran = atoll(verb, "--help")
    assert (ran.code, "Usage" in ran.out) == (0, True)


def test_goodput_of_a_job(atoll: Atoll, server: Any, finished: str) -> None:
    """It was never placed: all its time went by in the queue, and it has ended at once."""
    ran = atoll("goodput", "finished")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("1 GPU, 0.0 GPU-seconds held: 0.0% useful")
    document = json.loads(atoll("goodput", finished, "--json").out)
    assert (document["gpus"], document["repairs"]) == (1, [])
    assert "useful-compute" in document["gpu_seconds"]


def test_goodput_of_all_jobs(atoll: Atoll, server: Any) -> None:
    server.insert("waits-in-the-queue")
    ran = atoll("goodput", "--hours", "8760")
    assert ran.code == 0, ran.err
    assert "8,760.0 hours" in ran.out
    assert re.search(r"^queued +[\d,.]+ +not held", ran.out, re.M)
    assert re.search(r"^default +\d+ +0\.0 +0\.0% +0\.0%", ran.out, re.M)
    document = json.loads(atoll("goodput", "--json").out)
    assert "default" in [project["project"] for project in document["projects"]]


def test_goodput_of_a_job_has_no_hours(atoll: Atoll, server: Any, finished: str) -> None:
    ran = atoll("goodput", finished, "--hours", "2")
    assert ran.code == 2
    assert "--hours 2 was given with a job" in ran.err
