"""The cluster as the controller sees it: the newest fabric, and whether the cluster answers at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import structlog

from orchestrator.lifecycle.ports import ClusterUnreachableError, Launcher
from orchestrator.lifecycle.record import Record
from orchestrator.topology.declared import Declared
from orchestrator.topology.fabric import Fabric
from orchestrator.topology.merge import merge

STORE_EVERY_S = 5.0
"""An unchanged fabric is stored again after this, for the `last_seen` of its nodes."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Sighting:
    fabric: Fabric | None
    """None while the cluster gives no answer."""
    message: str
    unreachable_s: float
    """For how long it has given none."""


def without_cordoned(fabric: Fabric, cordoned: AbstractSet[str]) -> Fabric:
    """The fabric in which nothing is placed on nodes of these names."""
    if not cordoned:
        return fabric
    nodes = (replace(n, schedulable=n.schedulable and n.name not in cordoned) for n in fabric.nodes)
    return replace(fabric, nodes=tuple(nodes))


class ClusterWatch:
    """Asks for the fabric and tells SQL of changes. `look` may block for a call's deadline; `newest` never does.

    A `declared` fabric (the fabric files) is completed by what the cluster reports and counts where they contradict.
    """

    def __init__(
        self,
        launcher: Launcher,
        record: Record,
        *,
        declared: Callable[[], Declared] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launcher = launcher
        self._declared = declared
        self._problems: tuple[str, ...] = ()
        self._record = record
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._fabric: Fabric | None = None
        self._message = "The cluster has not been looked at yet."
        self._answered_at_s = clock_s()
        self._stored: tuple[Fabric, float] | None = None
        self._told: str | None = None

    def newest(self) -> Sighting:
        with self._lock:
            unreachable_s = 0.0 if self._fabric is not None else self._clock_s() - self._answered_at_s
            return Sighting(self._fabric, self._message, unreachable_s)

    def look(self) -> None:
        try:
            fabric = self._launcher.fabric()
        except ClusterUnreachableError as error:
            self._set(None, f"The cluster gives no answer: {error}")
        else:
            if self._declared is not None:
                declared = self._declared()
                merged = merge(declared.fabric, fabric)
                fabric, self._problems = merged.fabric, (*declared.problems, *merged.conflicts)
            fabric = without_cordoned(fabric, self._record.cordoned())
            before = self.newest().fabric
            self._set(before if fabric == before else fabric, "")
        self._tell(self.newest())

    def _set(self, fabric: Fabric | None, message: str) -> None:
        with self._lock:
            self._fabric, self._message = fabric, message
            if fabric is not None:
                self._answered_at_s = self._clock_s()

    def _tell(self, sighting: Sighting) -> None:
        if sighting.fabric is None:
            # Told again each time: jobs that were submitted meanwhile are cut off as well.
            self._record.cluster_unreachable(sighting.message)
            if self._told != sighting.message:
                log.warning("cluster-unreachable", message=sighting.message)
            self._told = sighting.message
            return
        said = "\n".join(self._problems)
        if self._told != said:
            self._record.cluster_reachable(said)
            self._told = said
        now_s = self._clock_s()
        if (
            self._stored is None
            or self._stored[0] != sighting.fabric
            or now_s - self._stored[1] >= STORE_EVERY_S
        ):
            self._record.observed(sighting.fabric)
            self._stored = (sighting.fabric, now_s)
