"""The process of a vault: a Ray actor."""

from __future__ import annotations

import os
import threading
import time

from actors.vault import memory
from actors.vault.books import Vault
from actors.vault.server import Address, VaultServer
from orchestrator.recovery.snapshots import Copy, Fence

SHARE = 4
"""A vault takes this part of its node's memory at most where the job says nothing: one in so many."""


class VaultActor:
    """The actor: a vault in service, and the lease of its job on the memory."""

    def __init__(self, node: str, limit_bytes: int | None, hold_s: float) -> None:
        import ray

        _, whole = memory.of_this_node()
        vault = Vault(node, limit_bytes or whole // SHARE, memory.of_this_node)
        host = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        self._vault = vault
        self._server = VaultServer(vault, node, host)
        threading.Thread(target=self._end_when_idle, args=(hold_s,), name="lease", daemon=True).start()

    def open(self, fence: Fence) -> tuple[Address, tuple[Copy, ...]]:
        """Serves the attempt `fence` from here on, and none before it; where it is reached, and what it holds."""
        self._server.touch()
        return self._server.address, self._vault.fence(fence)

    def _end_when_idle(self, hold_s: float) -> None:
        while (left_s := hold_s - self._server.idle_s) > 0:
            time.sleep(max(1.0, left_s))
        self._vault.clear()
        os._exit(0)
