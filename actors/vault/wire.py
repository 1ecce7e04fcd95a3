"""What is said to a vault: a JSON message behind its length, then the bytes or the descriptor that it announces.

Ranks speak over a Unix socket of their node and hand descriptors over, so that nothing is copied; vaults of other nodes
over TCP. Every connection begins with the vault's token, which only its job's processes know.
"""

from __future__ import annotations

import array
import json
import mmap
import os
import socket
from collections.abc import Mapping
from typing import Any

from actors.vault import memory
from orchestrator.recovery.snapshots import Copy, Generation

LENGTH_BYTES = 4
LIMIT_BYTES = 1 << 20
"""Longest message: one that is longer is no message of ours."""
TIMEOUT_S = 60.0
"""Longest wait for the other side to take or give anything; one whose node is gone says nothing at all."""
PIECE_BYTES = 1 << 30


class WireError(ConnectionError):
    """The other side is gone, or says what cannot be understood."""


def send(connection: socket.socket, message: Mapping[str, Any], file: int | None = None) -> None:
    """Sends a message, and a descriptor with it over a Unix socket."""
    content = json.dumps(message, separators=(",", ":")).encode()
    framed = len(content).to_bytes(LENGTH_BYTES, "little") + content
    if file is None:
        connection.sendall(framed)
        return
    sent = socket.send_fds(connection, [framed], [file])
    connection.sendall(framed[sent:])


def receive(connection: socket.socket) -> tuple[dict[str, Any], int | None]:
    """The next message and the descriptor that came with it. WireError at the end."""
    head, file = _first(connection)
    try:
        length = int.from_bytes(head, "little")
        if length > LIMIT_BYTES:
            raise WireError(f"a message of {length} bytes")
        content = bytearray(length)
        _fill(connection, memoryview(content))
        message = json.loads(content)
        if not isinstance(message, dict):
            raise WireError("a message that is no object")
        return message, file
    except BaseException:
        if file is not None:
            os.close(file)
        raise


def _first(connection: socket.socket) -> tuple[bytes, int | None]:
    """The length in front of a message; a descriptor comes with its first byte."""
    room = socket.CMSG_LEN(array.array("i").itemsize) if connection.family == socket.AF_UNIX else 0
    head, ancillary, _, _ = connection.recvmsg(LENGTH_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    file: int | None = None
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            file = array.array("i", content)[0]
    if not head:
        raise WireError("the other side has closed the connection")
    rest = bytearray(LENGTH_BYTES - len(head))
    _fill(connection, memoryview(rest))
    return head + bytes(rest), file


def send_file(connection: socket.socket, file: int, size: int) -> None:
    """Sends the file's bytes without taking them into this process (sendfile(2))."""
    with os.fdopen(os.dup(file), "rb") as content:
        if size and connection.sendfile(content, count=size) != size:
            raise WireError("the other side takes no more")


def receive_file(connection: socket.socket, size: int) -> int:
    """The descriptor of a new sealed file with the next `size` bytes. WireError, OSError: there is none then."""
    file = memory.new_file(size)
    try:
        if size:
            with mmap.mmap(file, size) as view, memoryview(view) as whole:
                _fill(connection, whole)
        memory.seal(file)
    except BaseException:
        os.close(file)
        raise
    return file


def _fill(connection: socket.socket, target: memoryview) -> None:
    done = 0
    while done < len(target):
        with target[done : done + PIECE_BYTES] as piece:
            received = connection.recv_into(piece)
        if received == 0:
            raise WireError("the other side ended in the middle of a message")
        done += received


def copy_to_json(copy: Copy) -> dict[str, Any]:
    return {
        "node": copy.node,
        "rank": copy.rank,
        "generation": list(copy.generation.key),
        "bytes": copy.bytes,
        "sha256": copy.sha256,
        "plan": copy.plan,
    }


def copy_from_json(told: Mapping[str, Any], *, node: str) -> Copy:
    """The same as held by `node`. KeyError, TypeError, ValueError for anything else."""
    generation = Generation(*(int(number) for number in told["generation"]))
    return Copy(
        node, int(told["rank"]), generation, int(told["bytes"]), str(told["sha256"]), str(told["plan"])
    )
