"""The controller's answer to a supervisor that lost nodes, or that would do without a slow one: where their ranks go
while the rest of the gang stays.

SQL owns the slots. So a change of a placement is stored before it is told, and told from what is stored: after a death
of the controller between the two the supervisor, which still asks, hears of the very same change. One that has given
up meanwhile ends its gang, and the slots of the change come back with the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.lifecycle.ports import Launcher
from orchestrator.lifecycle.record import Record
from orchestrator.lifecycle.reports import EventKind, GangReport, Move, NoMove
from orchestrator.lifecycle.view import GangView, JobView, holdings_of, read_jobs
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.moved import Moved, Part, dropped, moved_part, whole_replicas
from orchestrator.placement.placement import Refusal
from orchestrator.placement.room import Holding, free_room
from orchestrator.recovery.fewer import degrees, with_replicas
from orchestrator.spec.job import JobSpec
from orchestrator.store import events, jobs, placements
from orchestrator.store.engine import Database
from orchestrator.topology.fabric import Fabric, Node


class Moves:
    def __init__(self, database: Database, record: Record, launcher: Launcher) -> None:
        self._database = database
        self._record = record
        self._launcher = launcher

    def answer(self, view: JobView, report: GangReport, fabric: Fabric) -> None:
        """Decides, stores and tells. Does nothing where SQL and the supervisor do not stand at the same change, or the
        job has changed since `view` was read: the supervisor asks on, and the next round looks again.

        A gang that trains is told of a stored change as often as it has not carried it out: it asks no more once the
        slow node is no finding any longer, and what is stored holds.
        """
        gang = view.gang
        assert gang is not None
        if gang.revision == report.revision:
            with self._database.read() as session:
                placed_on = placements.nodes_of(placements.get(session, view.id, gang.incarnation))
                holdings = holdings_of(read_jobs(session))
                document = jobs.spec_of(session, view.id)
            found = decide(gang, report, document, fabric, placed_on, holdings)
            if isinstance(found, Refusal):
                self._tell(view, NoMove(report.revision + 1, found.message, slow=not report.lost_nodes))
                return
            on = {slot.node for slot in found.placement.slots}
            known = {node.name: node for node in (*placed_on, *fabric.nodes) if node.name in on}
            slow = None if report.lost_nodes else report.unwanted
            if not self._record.moved(view, report.lost_nodes, found, list(known.values()), slow=slow):
                return
        elif gang.revision != report.revision + 1:
            return
        self._tell(view, self._stored(view, report.revision + 1))

    def _stored(self, view: JobView, revision: int) -> Move:
        assert view.gang is not None
        with self._database.read() as session:
            row = placements.get(session, view.id, view.gang.incarnation)
            event = events.newest_of_kind(session, view.id, EventKind.MOVED)
            assert event is not None
            return Move(
                revision,
                event.data["rung"],
                placements.slots_of(row),
                Fabric(placements.nodes_of(row)),
                event.message,
                row.replicas,
                tuple(event.data["passed_over"]),
            )

    def _tell(self, view: JobView, answer: Move | NoMove) -> None:
        self._record.still_leads()
        self._launcher.move(view.gang_ref(), answer, fencing_token=self._record.token)


def decide(
    gang: GangView,
    report: GangReport,
    document: Mapping[str, Any],
    fabric: Fabric,
    placed_on: Sequence[Node],
    holdings: Sequence[Holding],
) -> Moved | Refusal:
    """`document`: the job file; `placed_on`: the nodes of the placement as they were when it was made, for those that
    the cluster has forgotten; `holdings`: what all jobs hold, this one included."""
    if gang.leaving:
        return Refusal("what the last repair gave back is still in use")
    if gang.replicas is not None:
        document = with_replicas(document, gang.replicas)
    spec = JobSpec.model_validate(document)
    if not report.lost_nodes:
        return _without_slow(gang, report, spec, fabric, placed_on, holdings)
    part = _part(gang, frozenset(report.lost_nodes), spec, fabric, placed_on, holdings)
    found = moved_part(part)
    if isinstance(found, Moved):
        return found
    most = len(whole_replicas(part))
    why = list(found.details)
    for dp in degrees(document, below=min(most + 1, part.mesh.degree("dp"))):
        fewer = dropped(part, dp)
        if isinstance(fewer, Moved):
            return replace(fewer, passed_over=tuple(why))
        why.append(f"with {dp} replicas: {fewer}")
    return Refusal("; ".join(why), tuple(why))


def _without_slow(
    gang: GangView,
    report: GangReport,
    spec: JobSpec,
    fabric: Fabric,
    placed_on: Sequence[Node],
    holdings: Sequence[Holding],
) -> Moved | Refusal:
    """Another place for the ranks of a slow node, whose slots are held until it has been left. No replica is given up
    for it."""
    slow = report.unwanted
    if slow is None or slow.node not in {slot.node for slot in gang.slots}:
        return Refusal("the job has no rank on the slow node")
    node = fabric.node(slow.node)
    if node is None or not node.alive:
        return Refusal(f"node {slow.node} is lost")
    found = moved_part(_part(gang, frozenset({slow.node}), spec, fabric, placed_on, holdings))
    if isinstance(found, Refusal):
        return found
    return replace(found, left=(*found.left, *(slot for slot in gang.slots if slot.node == slow.node)))


def _part(
    gang: GangView,
    lost: frozenset[str],
    spec: JobSpec,
    fabric: Fabric,
    placed_on: Sequence[Node],
    holdings: Sequence[Holding],
) -> Part:
    known = {node.name: node for node in placed_on if node.name in lost}
    nodes = [known.pop(node.name, node) for node in fabric.nodes]
    living = Fabric(tuple(node for node in fabric.nodes if node.name not in lost))
    return Part(
        Mesh.of(spec.parallelism),
        spec.placement,
        spec.resources,
        Fabric((*nodes, *known.values()), fabric.links),
        free_room(living, holdings),
        gang.slots,
        lost,
    )
