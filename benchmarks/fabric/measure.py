"""The driver, run on the head's host: places jobs in every way, trains each some steps on each placement, in turns.

    python -m benchmarks.fabric.measure ADDRESS ORDER.json

The order is a JSON file (`Order`); the answer is written beside it, `ANSWER`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from actors import ray_environment
from benchmarks.fabric.jobs import JOBS, TEXT, WIRING, Job
from benchmarks.fabric.network import Network, Wiring
from orchestrator.topology.fabric import Fabric

ANSWER = "answer.json"
SAMPLES_OF_RAY = 3
SEEDS = range(5)
"""Of random placements."""


@dataclass(frozen=True, slots=True)
class Order:
    owner: int
    """Process that holds the network."""
    jobs: Sequence[str]
    rounds: int
    """Turns of every placement."""
    steps: int
    """Of a turn, after one that does not count."""
    uplink_delay_s: float = 0.0

    @property
    def wiring(self) -> Wiring:
        return replace(WIRING, uplink_delay_s=self.uplink_delay_s)


def main() -> None:
    address, path = sys.argv[1], Path(sys.argv[2])
    order = Order(**json.loads(path.read_text()))
    ray_environment.connect(address, local=True)
    from actors import ray_nodes
    from benchmarks.fabric.ranks import Crew
    from orchestrator.topology.sources.ray_labels import fabric_from_ray_nodes

    seen = fabric_from_ray_nodes(ray_nodes.nodes())
    chosen = [(job, _choices(job, seen, order.wiring, path.parent)) for job in JOBS if job.name in order.jobs]
    crew = Crew.start(sorted(seen.slots()))
    print(f"{len(crew.actors)} ranks are ready", flush=True)
    found = {job.name: _measured(job, choices, crew, order, path.parent) for job, choices in chosen}
    (path.parent / ANSWER).write_text(json.dumps(found))


def _choices(job: Job, seen: Fabric, wiring: Wiring, directory: Path) -> list[Any]:
    """Placements of the job, chosen before any actor holds a slot."""
    from benchmarks.fabric.choices import Chooser

    text = directory / "text.txt"
    text.write_text(TEXT)
    fabric = Fabric(seen.nodes, job.links(wiring))
    taken = {host.name for host in wiring.hosts() if int(host.name.partition("n")[2]) >= job.free_nodes}
    free = frozenset(slot for slot in fabric.slots() if slot.node not in taken)
    chooser = Chooser(job.spec(text), fabric, free)
    with _held(sorted(taken)):
        ray = [chooser.ray(strategy, i) for strategy in ("PACK", "SPREAD") for i in range(SAMPLES_OF_RAY)]
    choices = [chooser.atoll(), *ray, *(chooser.random(seed) for seed in SEEDS), chooser.worst()]
    for choice in choices:
        print(f"{job.name}: {choice.name} is predicted to wait {choice.predicted_s:.3f} s a step", flush=True)
    return choices


@contextmanager
def _held(nodes: Sequence[str]) -> Iterator[None]:
    """Another job holds the slots of `nodes`."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    from benchmarks.fabric.jobs import SLOTS

    if not nodes:
        yield
        return
    bundles = [{"slot": SLOTS} for _ in nodes]
    selectors = [{"host": node} for node in nodes]
    group = placement_group(bundles, strategy="PACK", bundle_label_selector=selectors)
    ray.get(group.ready(), timeout=60)
    try:
        yield
    finally:
        remove_placement_group(group)


def _measured(job: Job, choices: Sequence[Any], crew: Any, order: Order, directory: Path) -> dict[str, Any]:
    """Samples of a job: by placement its slots, its prediction and the seconds of every step."""
    network = Network(order.wiring, owner=order.owner)
    for leaf in range(order.wiring.leaves):
        network.shape_uplink(f"l{leaf}", job.uplink_mbit)
    spec, random = job.spec(directory / "text.txt"), Random(0)
    times: dict[str, list[float]] = {choice.name: [] for choice in choices}
    sent: dict[str, float] = {}
    for number in range(order.rounds):
        for choice in random.sample(list(choices), len(choices)):
            told = crew.turn(spec, choice.slots, order.steps)
            times[choice.name] += told["step_s"]
            sent = told["sent_bytes"]
            shown = ", ".join(f"{s:.3f}" for s in told["step_s"])
            print(f"{job.name}, round {number + 1}, {choice.name}: {shown} s", flush=True)
    return {
        "what": job.what,
        "plan": dict(job.plan),
        "uplink_mbit": job.uplink_mbit,
        "bytes_of_rank_0": sent,
        "placements": [
            {
                "name": choice.name,
                "slots": [asdict(slot) for slot in choice.slots],
                "predicted_communication_s": choice.predicted_s,
                "step_s": times[choice.name],
            }
            for choice in choices
        ],
    }


if __name__ == "__main__":
    main()
