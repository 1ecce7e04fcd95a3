"""A real PostgreSQL server for tests: its own data folder and port, gone at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psycopg


class PostgresqlMissingError(RuntimeError):
    """No PostgreSQL server binaries on this machine."""


@dataclass(frozen=True)
class PostgresqlServer:
    folder: Path
    binaries: Path
    port: int
    options: str

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str, *, template: str = "template1") -> str:
        """URL of a new database. The template must have no connection open."""
        with psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{self.port}/postgres", autocommit=True
        ) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def drop_database(self, name: str) -> None:
        with psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{self.port}/postgres", autocommit=True
        ) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def crash(self) -> None:
        """Ends it at once, as a kill would; every connection breaks. Its data stay for `start`."""
        self._control("-m", "immediate", "-w", "stop")

    def start(self) -> None:
        """Starts it on its folder, after recovery from a crash where there was one."""
        log = str(self.folder / "server.log")
        self._control("-l", log, "-o", self.options, "-w", "-t", "120", "start")

    def stop(self) -> None:
        self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _control(self, *arguments: str) -> None:
        _run([str(self.binaries / "pg_ctl"), "-D", str(self.folder / "data"), *arguments])


def binaries() -> Path:
    """Folder of initdb and pg_ctl: from PATH, or where Debian puts them (newest version first)."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]), reverse=True
    )
    if not installed:
        raise PostgresqlMissingError(
            "no PostgreSQL server found: install it (Debian: apt-get install postgresql)"
        )
    return installed[0].parent


def start(*, keeps_commits: bool = False) -> PostgresqlServer:
    """Starts a server without durability (fsync off): its data lives as long as the tests. `keeps_commits`: what was
    committed outlives a crash of the server, though not of the machine."""
    found = binaries()
    folder = Path(
        tempfile.mkdtemp(prefix="pg-", dir="/tmp")
    )  # short: the socket's path has 107 bytes at most
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    data = str(folder / "data")
    _run([str(found / "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"])
    port = _free_port()
    options = (
        f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 "
        f"-c fsync=off -c synchronous_commit={'on' if keeps_commits else 'off'} -c full_page_writes=off "
        "-c max_connections=200"
    )
    server = PostgresqlServer(folder, found, port, options)
    server.start()
    return server


def _run(command: list[str]) -> None:
    """Runs it as the user postgres when root: the server refuses root."""
    identity: dict[str, object] = {}
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError as error:
            raise PostgresqlMissingError("the server refuses root and there is no user `postgres`") from error
        identity = {"user": "postgres", "group": "postgres", "extra_groups": []}
    done = subprocess.run(
        command,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if "start" not in command else subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **identity,  # type: ignore[call-overload]
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
