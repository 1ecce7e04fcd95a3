"""`atoll snapshot`: the cluster and its jobs as they are now, in a file that `atoll simulate` goes on from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from atoll.answers import Checkpoint, Cluster, JobDetail, NodeView
from atoll.cli.connection import TokenFile, Url, connect
from atoll.client import AtollClient
from atoll.errors import AtollError
from orchestrator.simulate.snapshot import Snapshot, SnapshotFabric, SnapshotJob, SnapshotLink, SnapshotNode
from orchestrator.spec.sections import Tier

LIVE_STATES = ("queued", "starting", "running", "recovering", "stopping")


class CannotWriteError(AtollError):
    """The file cannot be written."""


def snapshot(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write.")],
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Writes nodes, waiting and running jobs to a file for `atoll simulate --trace FILE`."""
    with connect(url, token_file) as client:
        found = take(client, now=datetime.now(UTC))
    try:
        out.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CannotWriteError(f"cannot write {out}: {error.strerror or error}") from None
    running = sum(job.slots is not None for job in found.jobs)
    typer.echo(
        f"{out}: {len(found.fabric.nodes)} nodes, {running} running and {len(found.jobs) - running} waiting jobs",
        err=True,
    )


def take(client: AtollClient, *, now: datetime) -> Snapshot:
    """What the API says now. Jobs that end meanwhile are left out."""
    cluster = client.cluster()
    jobs = [
        _job(detail, client.checkpoints(job.id).items, now)
        for state in LIVE_STATES
        for job in client.all_jobs(state=state)
        if not (detail := client.job(job.id)).is_terminal
    ]
    unique = {job.id: job for job in jobs}
    return Snapshot(at=now, fabric=_fabric(cluster), jobs=[unique[job_id] for job_id in sorted(unique)])


def _fabric(cluster: Cluster) -> SnapshotFabric:
    """Tiers of a newer server are left out, as are those of its nodes."""
    links = {Tier(tier): link for tier, link in cluster.links.items() if tier in set(Tier)}
    return SnapshotFabric(
        nodes=[_node(node) for node in cluster.nodes],
        links={tier: SnapshotLink(**link.model_dump()) for tier, link in links.items()},
    )


def _node(node: NodeView) -> SnapshotNode:
    tiers = {"island": node.island, "leaf": node.leaf, "spine": node.spine, "core": node.core}
    return SnapshotNode(
        name=node.name,
        accelerators=len(node.slots),
        domains={tier: name for tier, name in tiers.items() if name is not None},
        islands={int(index): name for index, name in node.islands.items()},
        accelerator=node.accelerator,
        alive=node.alive,
        schedulable=node.schedulable,
        cpus=node.cpus,
        suspect=node.suspect,
        rails={int(index): adapters for index, adapters in node.rails.items()},
        weak_pairs=node.weak_pairs,
        partitioned=node.partitioned,
    )


def _job(job: JobDetail, saved: Sequence[Checkpoint], now: datetime) -> SnapshotJob:
    placement = job.placement
    holds = placement is not None and placement.released_at is None
    slots = [(rank.node, rank.index) for rank in placement.ranks] if placement and holds else None
    # Attempts before this placement; what their start-up took is not known here.
    incarnation = placement.incarnation if placement is not None and holds else None
    before = [attempt for attempt in job.attempts if attempt.incarnation != incarnation]
    held_s = sum(((attempt.ended_at or now) - attempt.started_at).total_seconds() for attempt in before)
    if placement is not None and holds:
        held_s += (now - placement.placed_at).total_seconds()
    return SnapshotJob(
        id=job.id,
        submitted_at=job.created_at,
        spec=job.spec,
        step=job.step,
        checkpoint_step=max((c.step for c in saved if c.state == "committed"), default=0),
        step_s=_step_s(job),
        slots=slots,
        held_s=max(0.0, held_s),
    )


def _step_s(job: JobDetail) -> float | None:
    """Time of the newest step, from its tokens a second; None before the first."""
    training = job.spec["training"]
    if not job.tokens_per_s:
        return None
    return float(training["global_batch"] * training["sequence_length"] / job.tokens_per_s)
