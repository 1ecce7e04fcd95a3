"""Fills a database with a fabric of H100 and the jobs that hold most of it: `python large_store.py URL`.

10,240 accelerators if not told otherwise: two cores, four spines each, ten leaves a spine, sixteen nodes a leaf, eight
a node. Prints the ids of jobs as JSON by name. A script and not a fixture, so that a person and the benchmark can look
at the result too.
"""

from __future__ import annotations

import argparse
import json
import random
from datetime import UTC, datetime, timedelta

from sqlalchemy.orm import Session

from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.placement.placement import Placement
from orchestrator.spec.parse import parse_spec
from orchestrator.spec.sections import Tier
from orchestrator.store import jobs, leases, nodes, placements
from orchestrator.store.engine import open_database
from orchestrator.store.migrations.upgrade import upgrade
from orchestrator.topology.fabric import Fabric, Node, Slot

NODES = 1_280
PER_NODE = 8
PER_LEAF = 16
LEAVES_PER_SPINE = 10
SPINES_PER_CORE = 4
SIZES = (8, 16, 16, 32, 32, 64, 64, 128, 256, 512)
"""Ranks of a job; one in ten is as large as each of these."""
LEFT_FREE = 0.06
NOW = datetime.now(UTC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--idle", action="store_true", help="no jobs")
    chosen = parser.parse_args()
    upgrade(chosen.url)
    database = open_database(chosen.url)
    fabric = Fabric(tuple(_node(number) for number in range(chosen.nodes)))
    with database.write() as session:
        nodes.observe(session, fabric, now=NOW)
        token = leases.acquire(session, "seed", now=NOW, ttl=timedelta(days=1), endpoint=None)
        assert token is not None
        leases.report_cluster(
            session,
            token,
            reachable=True,
            message="node gpu0017: leaf l1 declared, l2 reported; l1 counts",
        )
        made = {} if chosen.idle else running(session, fabric)
    database.close()
    print(json.dumps(made))


def _node(number: int) -> Node:
    leaf = number // PER_LEAF
    spine = leaf // LEAVES_PER_SPINE
    return Node(
        name=f"gpu{number:04d}",
        accelerators=PER_NODE,
        domains={
            Tier.ISLAND: f"nv{number:04d}",
            Tier.LEAF: f"l{leaf}",
            Tier.SPINE: f"s{spine}",
            Tier.CORE: f"c{spine // SPINES_PER_CORE}",
        },
        accelerator="H100",
        alive=number % 211 != 210,
        schedulable=number % 97 != 96,
    )


def running(session: Session, fabric: Fabric) -> dict[str, str]:
    """Jobs of mixed sizes on the slots in order, until little is left."""
    rng = random.Random(11)
    free = [
        Slot(node.name, i)
        for node in fabric.nodes
        if node.alive and node.schedulable
        for i in range(node.accelerators)
    ]
    made: dict[str, str] = {}
    least = LEFT_FREE * len(free)
    while len(free) > least:
        size = min(rng.choice(SIZES), len(free))
        taken, free = free[:size], free[size:]
        name = f"train-{len(made):03d}"
        spec = parse_spec(
            {
                "name": name,
                "parallelism": {"dp": size},
                "training": {"steps": 1000, "global_batch": 8 * size},
            }
        )
        job_id = jobs.insert(session, spec, now=NOW - timedelta(hours=1)).job.id
        jobs.set_state(session, job_id, JobState.RUNNING, Reason.NONE, "", now=NOW)
        placements.insert(
            session,
            job_id,
            1,
            Placement(tuple(taken), ()),
            Fabric(tuple(node for node in fabric.nodes if node.name in {slot.node for slot in taken})),
            first_attempt=1,
            restarts_used=0,
            deaths_at_step=(0, 0),
            now=NOW,
        )
        made[name] = job_id
    return made


if __name__ == "__main__":
    main()
