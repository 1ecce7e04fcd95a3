"""What `atoll serve` makes sure of before it starts anything: each check ends in one clear sentence."""

from __future__ import annotations

import errno
import socket
import tempfile
from pathlib import Path

import sqlalchemy.exc
from sqlalchemy import make_url

from atoll.errors import AtollError, ServerUnreachableError
from atoll.transport import is_loopback
from orchestrator.queue.policy import InvalidPolicyError, read_policy_file
from orchestrator.settings import Settings
from orchestrator.store.migrations import upgrade
from orchestrator.topology.declared import split_files
from orchestrator.topology.read import FabricFile, read_fabric
from orchestrator.topology.sources.reading import InvalidFabricError

CONNECT_PATIENCE_S = 5.0


class CannotServeError(AtollError):
    """A setting that `atoll serve` cannot work with."""


def check_listen_address(host: str, port: int, *, has_token: bool) -> None:
    """The address can be bound, and strangers cannot reach it without a token."""
    if not is_loopback(host) and not has_token:
        raise CannotServeError(
            f"--host {host} can be reached from other machines, so the API needs a token: give --token-file FILE "
            "(or ATOLL_TOKEN), or stay on 127.0.0.1"
        )
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise CannotServeError(f"--host {host} is no address of this machine: {error.strerror}") from None
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            raise CannotServeError(listen_refusal(host, port, error)) from None


def listen_refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use by another program: give another --port (0 takes a free one)"
    if error.errno == errno.EACCES:
        return f"port {port} may not be used without privileges: give a --port of 1024 or more"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host} is no address of this machine"
    return f"cannot listen on {host}:{port}: {error.strerror}"


def free_port(host: str) -> int:
    """A port that was free a moment ago."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def check_directory(path: Path, flag: str) -> None:
    """The directory exists, or can be made, and takes files."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".atoll-") as probe:
            probe.write(b"a full disk takes the name of a file, but not a byte\n")
            probe.flush()
    except FileExistsError:
        raise CannotServeError(
            f"{flag} {path} is no directory: give one, or a path where one can be made"
        ) from None
    except OSError as error:
        raise CannotServeError(f"{flag} {path} cannot be written: {error.strerror or error}") from None


def check_fabric_files(files: str) -> None:
    """The files can be read and give a fabric together; every problem is on a line of its own."""
    try:
        read_fabric([FabricFile.parse(file) for file in split_files(files)])
    except InvalidFabricError as error:
        problems = "".join(f"\n  {problem}" for problem in error.problems)
        raise CannotServeError(f"--fabric-file {error.origin} gives no fabric:{problems}") from None


def check_queue_policy_file(path: Path) -> None:
    """The file can be read and is a policy of the queue; every problem is on a line of its own."""
    try:
        read_policy_file(path)
    except InvalidPolicyError as error:
        problems = "".join(f"\n  {problem}" for problem in error.problems)
        raise CannotServeError(f"--queue-policy-file {path} is no policy of the queue:{problems}") from None


def prepare_database(settings: Settings) -> None:
    """The database answers and has the newest tables."""
    url = settings.resolved_database_url()
    try:
        shown = (
            make_url(url).set(query={}).render_as_string(hide_password=True)
        )  # options may hold a password
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise CannotServeError(
            "the database URL cannot be read; one looks like postgresql://USER:PASSWORD@HOST:5432/NAME or "
            "sqlite:////folder/atoll.db"
        ) from None
    check_database_host(url, shown)
    try:
        upgrade(url)
    except (ValueError, ImportError, sqlalchemy.exc.NoSuchModuleError) as error:
        raise CannotServeError(f"the database {shown} cannot be used: {first_line(error)}") from None
    except sqlalchemy.exc.DBAPIError as error:
        raise CannotServeError(
            f"the database {shown} cannot be used: {first_line(error.orig or error)}"
        ) from None
    except OSError as error:
        raise CannotServeError(f"the database {shown} cannot be opened: {error.strerror or error}") from None


def check_database_host(url: str, shown: str) -> None:
    """A server that does not answer is found here in seconds; the driver would wait for minutes."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "postgresql" or not parsed.host or parsed.host.startswith("/"):
        return
    if parsed.port is not None and not 0 < parsed.port < 65536:
        raise CannotServeError(f"the database {shown} cannot be used: its port must be from 1 to 65535")
    try:
        socket.create_connection((parsed.host, parsed.port or 5432), CONNECT_PATIENCE_S).close()
    except OSError as error:
        raise CannotServeError(f"the database {shown} does not answer: {error.strerror or error}") from None


def check_ray_address(address: str) -> None:
    """Somebody listens there. Ray itself is asked by the controller, which tries again for as long as it takes."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdigit() or not 0 < int(port) < 65536 or "/" in host:
        raise CannotServeError(f"--ray-address {address}: expected HOST:PORT, for example 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), CONNECT_PATIENCE_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServerUnreachableError(
            f"no Ray cluster answers at {address}: {reason}. Is its head running, and is the port that of its GCS?"
        ) from None


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
