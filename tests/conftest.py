"""Fixtures for every test. `database_url` runs a test twice: on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from orchestrator.store.engine import Database, open_database
from orchestrator.store.migrations import upgrade
from tests import postgresql_server
from tests.postgresql_server import PostgresqlServer

# How long an example takes says how busy the machine is.
settings.register_profile("atoll", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("atoll")

DATABASES = ("sqlite", "postgresql")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=["cpu", "accelerator"],
        default="cpu",
        help="where the plans of one rank in test_plan_matrix.py train (benchmarks/gpu.sh)",
    )
    parser.addoption(
        "--shared-data",
        default=os.environ.get("ATOLL_SHARED_DATA"),
        help="folder of public inputs (topology files, traces, tables); tests that read them are skipped without it",
    )


@pytest.fixture(scope="session")
def shared_data(request: pytest.FixtureRequest) -> Path:
    """The folder of public inputs that are not part of the repository."""
    given = request.config.getoption("--shared-data")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("public inputs are not here: --shared-data DIR or ATOLL_SHARED_DATA names their folder")
    return folder


@pytest.fixture(scope="session")
def topology_data(shared_data: Path) -> Path:
    return shared_data / "topology"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A PostgreSQL server for the whole test session; the test is skipped where none is installed."""
    try:
        server = postgresql_server.start()
    except postgresql_server.PostgresqlMissingError as missing:
        pytest.skip(str(missing))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty, migrated SQLite file to copy."""
    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_template(postgresql: PostgresqlServer) -> str:
    """Name of an empty, migrated PostgreSQL database to copy."""
    upgrade(postgresql.create_database("migrated"))
    return "migrated"


@pytest.fixture(params=DATABASES)
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    name = f"empty_{uuid.uuid4().hex}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of an empty, migrated database that is this test's alone."""
    if request.param == "sqlite":
        path = tmp_path / "atoll.db"
        shutil.copy(request.getfixturevalue("migrated_sqlite"), path)
        yield f"sqlite:///{path}"
        return
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    name = f"test_{uuid.uuid4().hex}"
    yield server.create_database(name, template=request.getfixturevalue("migrated_template"))
    server.drop_database(name)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """The same, opened."""
    opened = open_database(database_url)
    yield opened
    opened.close()
