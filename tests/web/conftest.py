"""A real browser, a server on a filled database, one that asks for a token, and one with a real cluster and job."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Route, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
TOKEN = "a-token-of-the-web-tests-0123456789"
CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 60_000
"""Longest wait for something on a page; machines that run all tests at once are slow."""
STARTS_IN_S = 180.0


@dataclass(frozen=True)
class Server:
    url: str
    ids: Mapping[str, str] = field(default_factory=dict)
    """Jobs of the filled database by a short name."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One a module, not one a session: Playwright keeps an event loop running in this thread for as long as it lives,
    and the tests of other folders that follow in the same process want to run their own."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium on this machine: .ci/test-tools installs it")
    if not (ROOT / "web" / "dist" / "index.html").is_file() or not AXE.is_file():
        pytest.skip("the web UI is not built: `make web` builds it")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=list(CHROMIUM_ARGUMENTS))
        yield opened
        opened.close()


class Opener:
    """Opens pages and remembers whatever went wrong inside them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._closers: list[Callable[[], None]] = []
        self.errors: list[str] = []

    def __call__(self, url: str, *, width: int = 1440, scheme: str = "light") -> Page:
        context = self._browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
            reduced_motion="reduce",
        )
        context.set_default_timeout(PATIENCE_MS)
        self._closers.append(context.close)
        page = context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note)
        page.goto(url)
        return page

    def _note(self, message: ConsoleMessage) -> None:
        # The browser itself logs each answer that is no success; the pages show those and tests look at them.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def close(self) -> None:
        for closer in self._closers:
            closer()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Opener]:
    """Opens pages in windows of their own; the test fails on any script error in them, CSP violations included."""
    opener = Opener(browser)
    yield opener
    opener.close()
    assert opener.errors == []


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The API on a database with 10,000 jobs and one job in every state; no controller runs.

    Tests of other files count its jobs: one that submits takes `idle`.
    """
    with _filled(tmp_path_factory.mktemp("seeded"), "seeded_store.py") as server:
        yield server


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The API on a fabric of 10,240 accelerators with the jobs that hold most of it; no controller runs."""
    with _filled(tmp_path_factory.mktemp("large"), "large_store.py") as server:
        yield server


@pytest.fixture(scope="session")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The API on two idle nodes of eight H100, for tests that submit; no controller runs."""
    with _filled(tmp_path_factory.mktemp("idle"), "large_store.py", "--nodes", "2", "--idle") as server:
        yield server


@contextmanager
def _filled(folder: Path, script: str, *arguments: str) -> Iterator[Server]:
    """The API on a database that a script of this folder has filled."""
    url = f"sqlite:///{folder / 'atoll.db'}"
    command = [sys.executable, str(ROOT / "tests" / "web" / script), url, *arguments]
    made = subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=_environment({}))
    with _api({"DATABASE_URL": url}) as address:
        yield Server(address, json.loads(made.stdout))


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The API with a token on an empty database."""
    url = f"sqlite:///{tmp_path_factory.mktemp('guarded') / 'atoll.db'}"
    with _api({"DATABASE_URL": url, "ATOLL_TOKEN": TOKEN}) as address:
        yield Server(address)


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The whole control plane with a local Ray cluster: two leaves, two nodes each, two slots each."""
    port = _free_port()
    state = tmp_path_factory.mktemp("live")
    command = [
        "-m",
        "atoll",
        "serve",
        "--local",
        "2x2x2",
        "--port",
        str(port),
        "--state-directory",
        str(state),
    ]
    with _process(command, {}, f"http://127.0.0.1:{port}", state / "serve.log") as address:
        yield Server(address)


@contextmanager
def _api(settings: Mapping[str, str]) -> Iterator[str]:
    """An API process. Begins anew when its port was taken between the asking and the use."""
    with ExitStack() as stack:
        for left in reversed(range(5)):
            port = _free_port()
            address = f"http://127.0.0.1:{port}"
            process = _process(["-m", "api"], {**settings, "ATOLL_PORT": str(port)}, address, None)
            try:
                url = stack.enter_context(process)
                break
            except RuntimeError:
                if not left:
                    raise
        yield url


@contextmanager
def _process(command: list[str], settings: Mapping[str, str], url: str, log: Path | None) -> Iterator[str]:
    """Runs `python COMMAND` until the block ends; waits until it is ready."""
    with (log or Path(os.devnull)).open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=_environment(settings),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_ready(url, process, log)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(90)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ATOLL_") and name != "DATABASE_URL"
    }
    return {**inherited, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **settings}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path | None) -> None:
    deadline = time.monotonic() + STARTS_IN_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = log.read_text(errors="replace") if log else ""
            raise RuntimeError(f"the server ended with {process.returncode}: {said}")
        try:
            if httpx2.get(f"{url}/readyz", timeout=5).status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"the server was not ready within {STARTS_IN_S:.0f} s")


@pytest.fixture
def findings() -> Callable[[Page], list[str]]:
    """Serious and critical findings of axe on a page, one line each."""
    source = AXE.read_text(encoding="utf-8")

    def run(page: Page) -> list[str]:
        page.evaluate(source)  # a <script> tag would be against the page's content security policy
        found: list[dict[str, Any]] = page.evaluate("async () => (await axe.run(document)).violations")
        return [
            f"{item['id']} ({item['impact']}): {node['html'][:200]}"
            for item in found
            if item["impact"] in ("serious", "critical")
            for node in item["nodes"]
        ]

    return run


@pytest.fixture
def cut_off() -> Callable[[Page], None]:
    """Lets a page reach the API no more, as when the server is down."""

    def cut(page: Page) -> None:
        def refuse(route: Route) -> None:
            route.abort("connectionrefused")

        page.route("**/api/**", refuse)

    return cut
