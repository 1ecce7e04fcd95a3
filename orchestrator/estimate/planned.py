"""The whole answer to "where would this job run, and what would it cost", as plain values.

The API and `atoll plan --fabric` give the same one; it may be computed in another process.
"""

from __future__ import annotations

from typing import Any

from orchestrator.estimate.questions import Question, ask
from orchestrator.placement.demand import workload_of
from orchestrator.placement.explain import plan_label
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Refusal
from orchestrator.placement.report import axis_report, costs_report, ranks_report
from orchestrator.placement.room import Room
from orchestrator.placement.solver import solve
from orchestrator.spec.job import JobSpec
from orchestrator.topology.fabric import Fabric


def planned(spec: JobSpec, fabric: Fabric, room: Room, question: Question) -> dict[str, Any]:
    """Placed in `room`, what is free now; costs are those of the whole fabric."""
    mesh = Mesh.of(spec.parallelism)
    decided = solve(
        mesh,
        spec.placement,
        fabric,
        room.slots,
        resources=spec.resources,
        cpus=room.cpus,
        workload=workload_of(spec),
    )
    cost = ask(spec, fabric, question)
    refusal = decided if isinstance(decided, Refusal) else None
    placed = None if isinstance(decided, Refusal) else decided
    return {
        "spec": spec.model_dump(mode="json"),
        "fits": placed is not None,
        "plan": plan_label(spec.parallelism),
        "world_size": mesh.size,
        "ranks": [] if placed is None else ranks_report(mesh, placed.slots, fabric.nodes),
        "axes": [] if placed is None else [axis_report(axis) for axis in placed.axes],
        "explanation": [] if placed is None else list(placed.explanation),
        "refusal": None if refusal is None else refusal.message,
        "refusal_details": [] if refusal is None else list(refusal.details),
        "changes": [] if refusal is None else list(refusal.changes),
        "costs": [] if placed is None else costs_report(placed.cost),
        "ever": True if refusal is None else refusal.ever,
        "estimate": cost.estimate,
        "search": cost.search,
        "notes": list(cost.notes),
    }
