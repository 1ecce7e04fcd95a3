"""A node's vault in service: a thread a connection, one socket for the ranks of the node, one for other nodes.

It lives in a process of its own (`actors.vault.job`), so that snapshots outlive ranks and agents, and die with it.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from actors.vault import memory
from actors.vault.books import RefusedError, Vault
from actors.vault.wire import (
    TIMEOUT_S,
    WireError,
    copy_from_json,
    copy_to_json,
    receive,
    receive_file,
    send,
    send_file,
)
from orchestrator.recovery.snapshots import Copy, Fence, Generation


@dataclass(frozen=True, slots=True)
class Address:
    """Where a vault is reached and what it wants to hear first."""

    node: str
    socket: str
    """Name of an abstract Unix socket: it is no file, and goes with the process."""
    host: str
    port: int
    token: str


class VaultServer:
    """Serves from the moment it is made. `host`: the address of the node that others reach it at."""

    def __init__(self, vault: Vault, node: str, host: str) -> None:
        self._vault = vault
        self._node = node
        token = secrets.token_hex(16)
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        name = f"atoll-vault-{secrets.token_hex(8)}"
        local.bind(f"\0{name}")
        remote = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        remote.bind((host, 0))
        self.address = Address(node, name, host, remote.getsockname()[1], token)
        self._served = 0
        self._used_at = time.monotonic()
        self._count = threading.Lock()
        for listener in (local, remote):
            listener.listen(socket.SOMAXCONN)
            threading.Thread(target=self._accept, args=(listener,), name="vault", daemon=True).start()

    @property
    def idle_s(self) -> float:
        """Since when nobody has been connected; 0 while somebody is."""
        with self._count:
            return 0.0 if self._served else time.monotonic() - self._used_at

    def touch(self) -> None:
        """Somebody has asked by other ways."""
        with self._count:
            self._used_at = time.monotonic()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._serve, args=(connection,), name="vault client", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._count:
            self._served += 1
        visitor = _Visitor(self._vault, self._node, connection)
        try:
            with connection:
                # A rank may be silent as long as it likes: the kernel tells when it ends. Another node may vanish.
                connection.settimeout(None if connection.family == socket.AF_UNIX else TIMEOUT_S)
                visitor.serve(self.address.token)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # gone, or no client of ours
        finally:
            visitor.leave()
            with self._count:
                self._served -= 1
                self._used_at = time.monotonic()


class _Visitor:
    """One connection."""

    def __init__(self, vault: Vault, node: str, connection: socket.socket) -> None:
        self._vault = vault
        self._node = node
        self._connection = connection
        self._promised: set[int] = set()
        self._answers: Mapping[str, Callable[[dict[str, Any], int | None], Mapping[str, Any] | None]] = {
            "promise": self._promise,
            "put": self._put,
            "copy": self._copy,
            "take": self._take,
            "commit": self._commit,
            "get": self._get,
            "fetch": self._fetch,
        }

    def serve(self, token: str) -> None:
        hello, file = receive(self._connection)
        if file is not None:
            os.close(file)
        if not hmac.compare_digest(str(hello.get("token", "")), token):
            return
        while True:
            message, file = receive(self._connection)
            try:
                answer = self._answers[message["do"]](message, file)
            except RefusedError as error:
                answer = {"refused": str(error)}
            except (WireError, TimeoutError):
                raise
            except OSError as error:  # no memory for it, or too many descriptors
                answer = {"refused": f"{self._node}: {error}"}
            finally:
                if file is not None:
                    os.close(file)
            if answer is not None:
                send(self._connection, answer)

    def leave(self) -> None:
        for rank in self._promised:
            self._vault.withdraw(rank)

    def _promise(self, message: dict[str, Any], _: int | None) -> Mapping[str, Any]:
        rank = int(message["rank"])
        self._vault.promise(_fence(message), rank, int(message["bytes"]))
        self._promised.add(rank)
        return {}

    def _put(self, message: dict[str, Any], file: int | None) -> Mapping[str, Any]:
        """A rank of this node hands its snapshot over."""
        copy = copy_from_json(message["copy"], node=self._node)
        if file is None or not memory.is_sealed(file) or os.fstat(file).st_size != copy.bytes:
            raise RefusedError("a snapshot must come as a sealed file of the size that is told")
        self._keep(_fence(message), copy, os.dup(file))
        return {}

    def _copy(self, message: dict[str, Any], _: int | None) -> Mapping[str, Any]:
        """A rank of this node wants another node to have its snapshot too."""
        copy, file = self._vault.get(int(message["rank"]), _generation(message))
        try:
            with connect(Address(**message["to"])) as partner:
                offer = {"do": "take", "fence": message["fence"], "copy": copy_to_json(copy)}
                _require_granted(partner, offer)
                send_file(partner, file, copy.bytes)
                _require_granted(partner, None)
        except OSError as error:
            raise RefusedError(f"node {message['to']['node']} could not be given a copy: {error}") from error
        finally:
            os.close(file)
        return {}

    def _take(self, message: dict[str, Any], _: int | None) -> Mapping[str, Any]:
        """Another node's vault gives a copy of what it holds; it is kept when its digest is right."""
        copy = copy_from_json(message["copy"], node=self._node)
        fence = _fence(message)
        self._vault.promise(fence, copy.rank, copy.bytes)
        try:
            send(self._connection, {})
            file = receive_file(self._connection, copy.bytes)
            if memory.digest(file) != copy.sha256:
                os.close(file)
                raise RefusedError(f"the copy of rank {copy.rank} arrived at {self._node} damaged")
        finally:
            self._vault.withdraw(copy.rank)
        self._keep(fence, copy, file)
        return {}

    def _keep(self, fence: Fence, copy: Copy, file: int) -> None:
        try:
            self._vault.put(fence, copy, file)
        except RefusedError:
            os.close(file)
            raise

    def _commit(self, message: dict[str, Any], _: int | None) -> Mapping[str, Any]:
        """The generation is complete: here, and at the partners that have copies."""
        self._vault.commit(_fence(message), int(message["rank"]), _generation(message))
        for partner in message.get("partners", ()):
            told = {key: message[key] for key in ("do", "fence", "rank", "generation")}
            try:
                with connect(Address(**partner)) as there:
                    _require_granted(there, told)
            except OSError as error:
                raise RefusedError(f"node {partner['node']} could not be told: {error}") from error
        return {}

    def _get(self, message: dict[str, Any], _: int | None) -> None:
        """A rank of this node wants a snapshot: it is given the descriptor."""
        copy, file = self._vault.get(int(message["rank"]), _generation(message))
        try:
            send(self._connection, {"copy": copy_to_json(copy)}, file)
        finally:
            os.close(file)

    def _fetch(self, message: dict[str, Any], _: int | None) -> None:
        """Somebody of another node wants a snapshot: it is given the bytes."""
        copy, file = self._vault.get(int(message["rank"]), _generation(message))
        try:
            send(self._connection, {"copy": copy_to_json(copy)})
            send_file(self._connection, file, copy.bytes)
        finally:
            os.close(file)


def connect(address: Address, *, local: bool = False) -> socket.socket:
    """A connection that has shown the token: over TCP, or over the Unix socket of this node. OSError without one."""
    if local:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(TIMEOUT_S)
        try:
            connection.connect(f"\0{address.socket}")
        except OSError:
            connection.close()
            raise
    else:
        connection = socket.create_connection((address.host, address.port), timeout=TIMEOUT_S)
    with contextlib.ExitStack() as undo:
        undo.push(connection)
        send(connection, {"token": address.token})
        undo.pop_all()
    return connection


def _require_granted(connection: socket.socket, question: Mapping[str, Any] | None) -> None:
    """Waits for a yes, to `question` if there is one. RefusedError otherwise."""
    if question is not None:
        send(connection, question)
    answer, _ = receive(connection)
    if "refused" in answer:
        raise RefusedError(str(answer["refused"]))


def _fence(message: Mapping[str, Any]) -> Fence:
    incarnation, attempt = message["fence"]
    return int(incarnation), int(attempt)


def _generation(message: Mapping[str, Any]) -> Generation:
    return Generation(*(int(number) for number in message["generation"]))
