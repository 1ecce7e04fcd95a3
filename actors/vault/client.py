"""A rank's side of the vaults: its own node's over one lasting connection, others' when there is something to fetch."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from actors.vault import memory
from actors.vault.books import RefusedError
from actors.vault.server import Address, connect
from actors.vault.wire import WireError, copy_from_json, copy_to_json, receive, receive_file, send
from orchestrator.recovery.snapshots import Copy, Fence, Generation

ANSWER_S = 900.0
"""Longest wait for the own vault, which answers when a partner has everything; one that has ended is known at once."""


class VaultClient:
    """Calls raise RefusedError with a sentence for people, also when the vault is gone."""

    def __init__(self, own: Address, fence: Fence) -> None:
        self._own = own
        self._fence = fence
        self._connection: socket.socket | None = None

    def hold(self) -> None:
        """Connects now: a vault ends when no rank has been connected for long."""
        with contextlib.suppress(OSError):  # said with the first snapshot
            self._connect()

    def promise(self, rank: int, size: int) -> None:
        """Asks for room for the next snapshot, before it is made."""
        self._ask({"do": "promise", "rank": rank, "bytes": size})

    def put(self, copy: Copy, file: int) -> None:
        """Hands a sealed snapshot over; the descriptor stays the caller's too."""
        self._ask({"do": "put", "copy": copy_to_json(copy)}, file)

    def copy(self, rank: int, generation: Generation, partner: Address) -> None:
        """The own vault gives a copy of the snapshot to another one."""
        self._ask({"do": "copy", "rank": rank, "generation": generation.key, "to": asdict(partner)})

    def commit(self, rank: int, generation: Generation, partners: Sequence[Address]) -> None:
        """All ranks have put and copied: older snapshots may go."""
        told = [asdict(partner) for partner in partners]
        self._ask({"do": "commit", "rank": rank, "generation": generation.key, "partners": told})

    def get(self, rank: int, generation: Generation, source: Address) -> int:
        """The descriptor of a snapshot whose digest was checked, from any vault."""
        question = {"rank": rank, "generation": generation.key}
        try:
            if source == self._own:
                copy, file = self._get(question)
            else:
                copy, file = self._fetch(question, source)
        except (OSError, KeyError, ValueError, TypeError) as error:
            raise RefusedError(f"the vault of {source.node} gave nothing: {error}") from error
        if (copy.rank, copy.generation) != (rank, generation) or memory.digest(file) != copy.sha256:
            os.close(file)
            raise RefusedError(f"the snapshot of rank {rank} at {source.node} is damaged: its digest differs")
        return file

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _get(self, question: Mapping[str, Any]) -> tuple[Copy, int]:
        answer, file = self._exchange({"do": "get", **question}, None)
        if file is None:
            raise RefusedError(str(answer.get("refused", "nothing came")))
        return copy_from_json(answer["copy"], node=self._own.node), file

    def _fetch(self, question: Mapping[str, Any], source: Address) -> tuple[Copy, int]:
        with connect(source) as connection:
            send(connection, {"do": "fetch", **question})
            answer, _ = receive(connection)
            if "refused" in answer:
                raise RefusedError(str(answer["refused"]))
            copy = copy_from_json(answer["copy"], node=source.node)
            return copy, receive_file(connection, copy.bytes)

    def _ask(self, message: Mapping[str, Any], file: int | None = None) -> None:
        try:
            answer, strange = self._exchange({**message, "fence": self._fence}, file)
        except OSError as error:
            self.close()
            raise RefusedError(f"the vault of {self._own.node} does not answer: {error}") from error
        if strange is not None:
            os.close(strange)
        if "refused" in answer:
            raise RefusedError(str(answer["refused"]))

    def _exchange(self, message: Mapping[str, Any], file: int | None) -> tuple[dict[str, Any], int | None]:
        connection = self._connect()
        try:
            send(connection, message, file)
            return receive(connection)
        except (WireError, TimeoutError):
            self.close()
            raise

    def _connect(self) -> socket.socket:
        if self._connection is None:
            self._connection = connect(self._own, local=True)
            self._connection.settimeout(ANSWER_S)
        return self._connection
