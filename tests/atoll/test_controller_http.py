"""The private endpoint for live logs."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from atoll.controller_http import PrivateEndpoint
from orchestrator.lifecycle.ports import GangRef, Launcher
from orchestrator.lifecycle.reports import GangOrder
from orchestrator.topology.fabric import Fabric, Slot
from tests.orchestrator.lifecycle.fake_cluster import FakeCluster, FakeGang, FakeLauncher

TOKEN = "s3cret-token"
GANG = GangRef("0192f000-0000-7000-8000-000000000000", 2)


class Connection:
    """What the endpoint finds its launcher through."""

    launcher: Launcher | None


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    order = GangOrder(GANG.job_id, 2, 3, 0, (0, 0), {}, (Slot("l0n0", 0),), Fabric(()), "/storage", 1)
    cluster.gangs[GANG] = FakeGang(order, attempt=3)
    return cluster


@pytest.fixture
def connection(cluster: FakeCluster) -> Connection:
    found = Connection()
    found.launcher = FakeLauncher(cluster)
    return found


@pytest.fixture
def endpoint(connection: Connection) -> Iterator[PrivateEndpoint]:
    opened = PrivateEndpoint("127.0.0.1", 0, TOKEN, lambda: connection.launcher)
    yield opened
    opened.close()


def ask(endpoint: PrivateEndpoint, query: str, *, path: str | None = None, token: str | None = TOKEN) -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    path = path or f"/internal/v1/logs/{GANG.job_id}"
    return httpx2.get(f"{endpoint.url}{path}?{query}", headers=headers, timeout=60, trust_env=False)


def test_a_log_is_read(endpoint: PrivateEndpoint) -> None:
    answer = ask(endpoint, "incarnation=2&rank=0&offset=5&limit=4")
    assert answer.status_code == 200
    body = answer.json()
    assert base64.b64decode(body.pop("data_base64")) == b"0 sa"  # of "rank 0 says hello\n"
    assert body == {"attempt": 3, "rank": 0, "offset": 5, "size": 18}
    tail = ask(endpoint, "incarnation=2&rank=0&offset=-6&attempt=1").json()
    assert (tail["attempt"], tail["offset"], base64.b64decode(tail["data_base64"])) == (1, 12, b"hello\n")


@pytest.mark.parametrize("token", [None, "s3cret", "s3cret-token2", "ä"])
def test_without_the_token_nothing_is_told(endpoint: PrivateEndpoint, token: str | None) -> None:
    if token == "ä":
        headers = {"Authorization": "Bearer ä".encode()}
        answer = httpx2.get(
            f"{endpoint.url}/internal/v1/logs/x", headers=headers, timeout=60, trust_env=False
        )
    else:
        answer = ask(endpoint, "incarnation=2&rank=0", token=token)
    assert answer.status_code == 401
    assert "rank" not in answer.text
    assert ask(endpoint, "", path="/anything", token=None).status_code == 401


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("rank=0", 400),
        ("incarnation=2", 400),
        ("incarnation=x&rank=0", 400),
        ("incarnation=2&rank=-1", 400),
        ("incarnation=2&rank=0&limit=0", 400),
        ("incarnation=2&rank=0&limit=99999999999999999999999", 400),
        ("incarnation=2&rank=0&limit=999999999999", 200),
        ("incarnation=1&rank=0", 404),
        ("incarnation=2&rank=7", 404),
    ],
)
def test_questions_and_answers(endpoint: PrivateEndpoint, query: str, status: int) -> None:
    assert ask(endpoint, query).status_code == status


@pytest.mark.parametrize(
    "path", ["/", "/internal/v1/logs/", "/internal/v1/logs/a/b", "/internal/v1/logs/unknown"]
)
def test_no_such_path(endpoint: PrivateEndpoint, path: str) -> None:
    assert ask(endpoint, "incarnation=2&rank=0", path=path).status_code == 404


def test_no_cluster(endpoint: PrivateEndpoint, cluster: FakeCluster, connection: Connection) -> None:
    cluster.unreachable = True
    assert ask(endpoint, "incarnation=2&rank=0").status_code == 503
    connection.launcher = None
    assert ask(endpoint, "incarnation=2&rank=0").status_code == 503


def test_it_listens_on_an_ipv6_address(connection: Connection) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    endpoint = PrivateEndpoint("::1", 0, TOKEN, lambda: connection.launcher)
    try:
        assert endpoint.url.startswith("http://[::1]:")
        assert httpx2.get(f"{endpoint.url}/none", trust_env=False).status_code == 401
    finally:
        endpoint.close()
