"""`atoll serve` with settings that cannot work: one clear sentence, the right exit code, nothing left running."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.local_cluster import LocalCluster, Shape
from atoll.children import BUDGET, Child, ending
from atoll.controller import declared_fabric, queue_policy
from atoll.errors import ServerUnreachableError
from atoll.local_ray import LocalRay
from atoll.preflight import CannotServeError, check_directory
from atoll.serve import ControlPlane, only_one, settings_for
from atoll.serve import serve as serve_until_told
from orchestrator.queue.policy import QueuePolicy
from orchestrator.settings import Settings
from orchestrator.spec.sections import Tier

Atoll = Callable[..., Any]


@pytest.fixture
def listener() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        yield bound.getsockname()[1]


@pytest.fixture
def serve(atoll: Atoll, tmp_path: Path) -> Callable[..., Any]:
    """`atoll serve` on a free port with a state directory of the test's own."""

    def run(*arguments: str) -> Any:
        given = list(arguments)
        if "--state-directory" not in given:
            given += ["--state-directory", str(tmp_path / "state")]
        if "--port" not in given:
            given += ["--port", "0"]
        return atoll("serve", *given)

    return run


def test_without_ray_it_says_what_to_give(serve: Any) -> None:
    ran = serve()
    assert ran.code == 2
    for told in ("--ray-address", "--local", "RAY_ADDRESS"):
        assert told in ran.err


def test_a_port_in_use(serve: Any, listener: int) -> None:
    ran = serve("--local", "1x1x1", "--port", str(listener))
    assert ran.code == 2
    assert f"port {listener}" in ran.err
    assert "in use" in ran.err


def test_an_unreachable_ray_cluster(serve: Any) -> None:
    ran = serve("--ray-address", "127.0.0.1:9")
    assert ran.code == 3
    assert "127.0.0.1:9" in ran.err


def test_ray_address_from_the_environment(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    assert serve().code == 3


@pytest.mark.parametrize(
    "address", ["somewhere", "host:", "host:abc:", ":6379", "host:0", "host:99999", "ray://host:1", "auto"]
)
def test_a_ray_address_that_is_none(serve: Any, address: str) -> None:
    ran = serve("--ray-address", address)
    assert ran.code == 2
    assert f"--ray-address {address}: expected HOST:PORT" in ran.err


@pytest.mark.parametrize("shape", ["2x2", "0x1x1", "axbxc", "2x2x2x2", "-1x1x1", "9999x1x1"])
def test_a_shape_that_is_none(serve: Any, shape: str) -> None:
    ran = serve(f"--local={shape}")
    assert ran.code == 2
    assert "2x2x2" in ran.err


def test_two_answers_to_one_question(serve: Any) -> None:
    assert serve("--local", "1x1x1", "--ray-address", "127.0.0.1:6379").code == 2


@pytest.mark.parametrize("flag", ["--state-directory", "--storage-directory"])
def test_a_directory_that_cannot_be_written(serve: Any, tmp_path: Path, flag: str) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    ran = serve("--local", "1x1x1", flag, str(blocked / "below"))
    assert ran.code == 2
    assert flag in ran.err
    assert "cannot be written" in ran.err
    ran = serve("--local", "1x1x1", flag, str(blocked))
    assert ran.code == 2
    assert f"{flag} {blocked} is no directory" in ran.err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, ["cannot be read: No such file"]),
        (b"\xff\xfe", ["is empty"]),
        (b"nodes: [", ["line 2: not valid YAML"]),
        (b"[1]", ["is a list of things that are no nodes or topologies"]),
        (
            b"nodes:\n- {name: n, accelerators: many, leaff: l0}\n- {leaf: 7}\n",
            [
                "nodes.0.accelerators: must be a whole number",
                "nodes.0.leaff: is not a known key",
                "nodes.1.name: is required",
                "nodes.1.leaf: must be text",
            ],
        ),
    ],
)
@pytest.mark.parametrize("way", ["flag", "environment"])
def test_a_fabric_file_that_cannot_be_taken(
    serve: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes | None,
    told: list[str],
    way: str,
) -> None:
    path = tmp_path / "fabric.yaml"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("ATOLL_FABRIC_FILE", str(path if way == "environment" else tmp_path / "another"))
    ran = serve("--local", "1x1x1", *(["--fabric-file", str(path)] if way == "flag" else []))
    assert ran.code == 2
    assert f"--fabric-file {path}" in ran.err
    for problem in told:
        assert f"\n  {problem}" in ran.err
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, ["cannot be read: No such file"]),
        (b"[1]", ["a queue policy is a mapping with any of the keys starvation_s"]),
        (
            b"starvation: 5\nprojects: {a: {weight: 0, quota: some}}\n",
            [
                "starvation: is not a known key",
                "projects.a.weight: must be more than 0.0, not 0",
                "projects.a.quota: must be a whole number",
            ],
        ),
    ],
)
def test_a_queue_policy_that_cannot_be_taken(
    serve: Any, tmp_path: Path, content: bytes | None, told: list[str]
) -> None:
    path = tmp_path / "queue.yaml"
    if content is not None:
        path.write_bytes(content)
    ran = serve("--local", "1x1x1", "--queue-policy-file", str(path))
    assert ran.code == 2
    assert f"--queue-policy-file {path} is no policy of the queue" in ran.err
    for problem in told:
        assert f"\n  {problem}" in ran.err
    assert not (tmp_path / "state").exists()


PAIR = """\tGPU0\tGPU1\tCPU Affinity
GPU0\t X \tNV4\t0-15
GPU1\tNV4\t X \t0-15
"""
"""`nvidia-smi topo -m` of two GPUs."""


def test_the_files_reach_the_controller_by_their_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller is a process of its own: what it reads is its environment."""
    (tmp_path / "fabric.yaml").write_text("nodes: [{name: n0, accelerators: 2, leaf: l0}]")
    (tmp_path / "inside.txt").write_text(PAIR)
    (tmp_path / "queue.yaml").write_text("reservations: 3")
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {}

    def run(plane: ControlPlane) -> int:
        given.update(plane._environment("127.0.0.1:6379"))
        return 0

    monkeypatch.setattr(ControlPlane, "run", run)
    settings = settings_for(
        fabric_file="fabric.yaml:n0=inside.txt",
        queue_policy_file=Path("queue.yaml"),
        state_directory=Path("state"),
        port=0,
    )
    assert serve_until_told(settings, Shape(1, 1, 1), None, lambda line: None) == 0
    assert given["ATOLL_FABRIC_FILE"] == f"{tmp_path}/fabric.yaml:n0={tmp_path}/inside.txt"
    monkeypatch.chdir("/")
    declared = declared_fabric(Settings(fabric_file=given["ATOLL_FABRIC_FILE"]))
    assert declared is not None
    (node,) = declared().fabric.nodes
    assert (node.name, node.accelerators, node.domains[Tier.LEAF]) == ("n0", 2, "l0")
    assert node.domains[Tier.ISLAND] == "n0", "the inside of n0 says that NVLink joins both"
    policy = queue_policy(Settings(queue_policy_file=given["ATOLL_QUEUE_POLICY_FILE"]))
    assert policy == QueuePolicy(reservations=3)


@pytest.mark.parametrize("taken", [True, False, None])
def test_whether_jobs_may_bring_code_reaches_the_api(tmp_path: Path, taken: bool | None) -> None:
    settings = settings_for(state_directory=tmp_path, user_code=taken)
    plane = ControlPlane(settings, Shape(1, 1, 1), None, lambda line: None, threading.Event())
    told = plane._environment("127.0.0.1:6379")["ATOLL_USER_CODE"]
    assert Settings(user_code=told).user_code is (taken is not False)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nonsense", "cannot be read"),
        ("mysql://host/name", "cannot be used"),
        ("sqlite://", "SQLite needs a file"),
        ("sqlite:////proc/none/atoll.db", "cannot be"),
        ("postgresql://user:hush-hush@127.0.0.1:9/name", "does not answer"),
        ("postgresql://user:hush-hush@no-such-host.invalid/name", "does not answer"),
        ("postgresql://user@127.0.0.1:9/name?password=hush-hush", "does not answer"),
        ("postgresql://user:hush-hush@127.0.0.1:65545/name", "port must be from 1 to 65535"),
    ],
)
def test_a_database_that_cannot_be_used(serve: Any, url: str, told: str) -> None:
    ran = serve("--local", "1x1x1", "--database-url", url)
    assert ran.code == 2
    assert told in ran.err
    assert "hush-hush" not in ran.err
    assert "Traceback" not in ran.err


def test_a_file_that_is_no_database(serve: Any, tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("this is a text and no database, long enough for a header" * 4)
    ran = serve("--local", "1x1x1", "--database-url", f"sqlite:///{path}")
    assert ran.code == 2
    assert "cannot be used" in ran.err


def test_listening_for_strangers_needs_a_token(serve: Any) -> None:
    ran = serve("--local", "1x1x1", "--host", "0.0.0.0")
    assert ran.code == 2
    assert "--token-file" in ran.err


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_a_host_that_is_none_of_this_machine(serve: Any, tmp_path: Path, host: str) -> None:
    token = tmp_path / "token"
    token.write_text("a-long-enough-token-0123456789")
    ran = serve("--local", "1x1x1", "--host", host, "--token-file", str(token))
    assert ran.code == 2
    assert "no address of this machine" in ran.err


def test_two_servers_do_not_share_a_state_directory(serve: Any, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with only_one(tmp_path / "state"):
        ran = serve("--local", "1x1x1")
    assert ran.code == 2
    assert f"process {os.getpid()}" in ran.err


def test_a_lock_that_cannot_be_opened(serve: Any, tmp_path: Path) -> None:
    (tmp_path / "state" / "serve.lock").mkdir(parents=True)
    ran = serve("--local", "1x1x1")
    assert ran.code == 2
    assert "serve.lock cannot be opened: Is a directory" in ran.err


def test_a_directory_that_takes_names_but_no_bytes(tmp_path: Path) -> None:
    """As a full disk does; the limit refuses a byte with another reason (EFBIG, setrlimit(2))."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(CannotServeError, match=r"--state-directory .* cannot be written: File too large"):
            check_directory(tmp_path, "--state-directory")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    check_directory(tmp_path, "--state-directory")


def test_a_wrong_setting_in_the_environment(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOLL_MAX_BODY_BYTES", "many")
    monkeypatch.setenv("ATOLL_CONTROLLER_PORT", "99999")
    ran = serve("--local", "1x1x1")
    assert ran.code == 2
    assert "ATOLL_MAX_BODY_BYTES is 'many'" in ran.err
    assert "ATOLL_CONTROLLER_PORT is '99999'" in ran.err


@pytest.mark.parametrize("module", ["api", "atoll.controller"])
def test_a_wrong_setting_ends_each_process_with_a_sentence(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", module],
        env={**os.environ, "ATOLL_PORT": "many"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("atoll: ATOLL_PORT is 'many': ")
    assert len(ran.stderr.splitlines()) == 1


def test_shapes_are_read() -> None:
    assert Shape.parse("2x3x4") == Shape(2, 3, 4)


def test_a_child_that_dies_is_started_again_and_given_up_in_the_end() -> None:
    child = Child("short", ["-c", "raise SystemExit(5)"], {})
    child.start()
    now = 0.0
    for death in range(1, BUDGET + 2):
        assert child.process is not None
        child.process.wait(60)
        news = child.tend(now)
        assert news is not None
        assert "exit code 5" in news
        assert child.is_hopeless == (death > BUDGET)
        now = child.due
        assert child.tend(now) is None  # started again


def test_old_deaths_are_forgotten() -> None:
    child = Child("short", ["-c", "pass"], {})
    for round_ in range(BUDGET * 2):
        child.start()
        assert child.process is not None
        child.process.wait(60)
        child.tend(round_ * 1000.0)
    assert not child.is_hopeless


def test_children_die_with_a_killed_parent(tmp_path: Path) -> None:
    from actors.processes import alive
    from tests.atoll.conftest import wait_for

    program = (
        "from atoll.children import Child; import time\n"
        "child = Child('c', ['-c', 'import time; time.sleep(600)'], {}); child.start()\n"
        "print(child.process.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.wait()
    wait_for("the child is gone", lambda: not alive(pid))


def test_endings() -> None:
    assert (ending(3), ending(-9), ending(-6)) == ("exit code 3", "SIGKILL", "SIGABRT")


@pytest.mark.parametrize("told_to_stop", [True, False])
def test_a_stop_while_the_local_cluster_comes_up_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told_to_stop: bool
) -> None:
    stop = threading.Event()

    def ensure(local: LocalRay) -> LocalCluster:
        if told_to_stop:
            stop.set()
        raise ServerUnreachableError("not ready")

    monkeypatch.setattr(LocalRay, "ensure", ensure)
    settings = settings_for(state_directory=tmp_path)
    plane = ControlPlane(settings, Shape(1, 1, 1), None, lambda line: None, stop)
    if told_to_stop:
        assert plane.run() == 0
    else:
        with pytest.raises(ServerUnreachableError):
            plane.run()
