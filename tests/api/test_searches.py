"""Searches for plans run beside the requests, not before them."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi.testclient import TestClient

from api.problems import ProblemError
from api.searches import Searches
from orchestrator.estimate.planned import planned
from tests.api.conftest import job_file

PATIENCE_S = 60.0


def held_up(directory: Path, *question: Any) -> dict[str, Any]:
    """The real answer, but only once the file `go` is there; tells first which process works on it."""
    (directory / "pid").write_text(str(os.getpid()))
    wait_for(directory / "go")
    return planned(*question)


def held_up_for_ever(directory: Path) -> None:
    (directory / "pid").write_text(str(os.getpid()))
    wait_for(directory / "never")


def wait_for(file: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while not file.exists():
        assert time.monotonic() < end, file
        time.sleep(0.02)


def test_other_requests_are_answered_while_one_searches(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.routers.plan.planned", partial(held_up, tmp_path))
    with ThreadPoolExecutor(1) as pool:
        search = pool.submit(client.post, "/api/v1/plan", json=job_file(), params={"auto": True})
        wait_for(tmp_path / "pid")
        assert int((tmp_path / "pid").read_text()) != os.getpid(), "a search holds this process's interpreter"
        assert client.get("/healthz").status_code == 200
        assert client.get("/api/v1/cluster").status_code == 200
        assert not search.done()
        (tmp_path / "go").touch()
        answer = search.result()
    assert answer.status_code == 200, answer.text
    assert answer.json()["spec"]["name"] == "demo"


def test_a_search_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async def search() -> None:
        searches = Searches(deadline_s=8.0)  # the process has to start within it
        with pytest.raises(ProblemError, match="not done within 8 s") as refused:
            await searches.run(held_up_for_ever, tmp_path)
        assert (refused.value.status, refused.value.code) == (503, "search-took-too-long")
        worker = int((tmp_path / "pid").read_text())
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)

    anyio.run(search)


def test_a_search_waits_for_its_turn(tmp_path: Path) -> None:
    """One at a time: they never overlap."""

    async def search() -> None:
        searches = Searches(at_once=1)
        async with anyio.create_task_group() as all_of_them:
            for _ in range(3):
                all_of_them.start_soon(searches.run, alone, tmp_path / "lock")

    anyio.run(search)


def alone(lock: Path) -> None:
    lock.mkdir()  # FileExistsError when another one is here
    time.sleep(0.1)
    lock.rmdir()


def test_a_process_that_ends_by_itself_is_told(tmp_path: Path) -> None:
    async def search() -> None:
        with pytest.raises(ProblemError, match="has ended") as refused:
            await Searches().run(os._exit, 3)
        assert (refused.value.status, refused.value.code) == (503, "search-ended")

    anyio.run(search)
