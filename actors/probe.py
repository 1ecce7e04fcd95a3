"""Measures the network between nodes: one actor for each accelerator that takes part, pairs of them round by round.

The actors (`prober.py`) hold their accelerators while they measure, and end with this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from actors import ray_nodes
from actors.prober import Prober
from orchestrator.recovery.timeouts import CONTROL_CALL_S, PROBE_MEET_S, PROBE_START_S, probe_pair_s
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.names import natural_key
from orchestrator.topology.probe.findings import Measurement
from orchestrator.topology.probe.inference import with_leaves
from orchestrator.topology.probe.rounds import Pair, Round, rounds_of
from orchestrator.topology.sources.reading import counted

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Probed:
    fabric: Fabric
    """With leaves that the measurements showed, where none were known."""
    measurements: tuple[Measurement, ...]
    skipped: Mapping[str, str]
    """Nodes that did not measure, and why."""


def probe(fabric: Fabric, *, most: int, seconds: float, told: Told) -> Probed:
    """Measures between the nodes of `fabric` that live, at most `most` rounds of a kind and tier; once more where that
    shows leaves that were not known. This process is a driver of the cluster. Nothing waits beyond its deadline."""
    skipped: dict[str, str] = {}
    crew = _Crew.start(fabric, skipped, told)
    try:
        found = crew.play_all(rounds_of(fabric, crew.ends, most), seconds, told)
        if (completed := with_leaves(fabric, found)) is not None:
            told("leaves show that were not known; measuring once more, knowing them")
            fabric = completed
            found = crew.play_all(rounds_of(fabric, crew.ends, most), seconds, told)
    finally:
        crew.end()
    return Probed(fabric, tuple(found), skipped)


@dataclass
class _Crew:
    skipped: dict[str, str]
    actors: dict[Slot, Any] = field(default_factory=dict)
    _node_ids: dict[str, str] = field(default_factory=dict)

    @classmethod
    def start(cls, fabric: Fabric, skipped: dict[str, str], told: Told) -> _Crew:
        living = {ray_nodes.host_of(node): node for node in ray_nodes.nodes() if node["Alive"]}
        free = ray._private.state.available_resources_per_node()  # type: ignore[no-untyped-call]
        crew = cls(skipped)
        for node in sorted(fabric.nodes, key=lambda node: natural_key(node.name)):
            here = living.get(node.name)
            if here is None or not node.alive:
                skipped[node.name] = "not part of the cluster"
                continue
            crew._node_ids[node.name] = here["NodeID"]
            indexes = free_indexes(node, here["Resources"], free.get(here["NodeID"], {}))
            if not indexes:
                skipped[node.name] = "all its accelerators are in use"
            for index in indexes:
                slot = Slot(node.name, index)
                crew.actors[slot] = crew._prober(slot, here["Resources"])
        told(f"starting {len(crew.actors)} probers")
        crew._await_ready(list(crew.actors), "its prober did not start")
        return crew

    @property
    def ends(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for slot in sorted(self.actors):
            found.setdefault(slot.node, []).append(slot.index)
        return found

    def _prober(self, slot: Slot, has: Mapping[str, float]) -> Any:
        unit = f"gpu{slot.index}"
        return (
            ray.remote(Prober)
            .options(
                num_cpus=0,
                num_gpus=1 if has.get("GPU") else 0,
                resources={unit: 1} if unit in has else {},
                label_selector={"ray.io/node-id": self._node_ids[slot.node]},
            )
            .remote(slot.index)
        )

    def _await_ready(self, slots: Sequence[Slot], what: str) -> None:
        """Keeps those that are ready in time; says of the others' nodes why they do not take part."""
        refs = {self.actors[slot].ready.remote(): slot for slot in slots}
        done, late = ray.wait(list(refs), num_returns=len(refs), timeout=PROBE_START_S) if refs else ([], [])
        for ref in late:
            self._lose(refs[ref], f"{what} within {PROBE_START_S:.0f} s")
        for ref in done:
            try:
                ray.get(ref, timeout=CONTROL_CALL_S)
            except RayError as error:
                self._lose(refs[ref], f"{what}: {_first_line(error)}")

    def _lose(self, slot: Slot, why: str) -> None:
        ray.kill(self.actors.pop(slot))
        if not any(other.node == slot.node for other in self.actors):
            self.skipped[slot.node] = why

    def play_all(self, rounds: Sequence[Round], seconds: float, told: Told) -> list[Measurement]:
        found: list[Measurement] = []
        for number, one in enumerate(rounds):
            crowd = ", all at once" if one.loaded else ""
            told(f"round {number + 1} of {len(rounds)}: {one.tier}, {counted(len(one.pairs), 'pair')}{crowd}")
            found += self.play(one, number, seconds)
        return found

    def play(self, one: Round, number: int, seconds: float) -> list[Measurement]:
        """All pairs meet, and then do each thing at the same time."""
        failed: dict[Pair, str] = {}

        def both(method: str, deadline_s: float, arguments: Callable[[Pair, int], tuple[Any, ...]]) -> Any:
            """Has both ends of every pair that has not failed do something; by pair what the first answers.
            `arguments` are of a pair and the rank of an end."""
            pairs = [p for p in one.pairs if p not in failed and p.a in self.actors and p.b in self.actors]
            asked = {
                p: [
                    getattr(self.actors[end], method).remote(*arguments(p, rank))
                    for rank, end in enumerate((p.a, p.b))
                ]
                for p in pairs
            }
            return self._answers(asked, deadline_s, failed)

        patience_s, rates = probe_pair_s(seconds), []
        places = both("place", CONTROL_CALL_S, lambda pair, rank: ())
        meeting_s = PROBE_MEET_S + CONTROL_CALL_S
        both("meet", meeting_s, lambda pair, rank: (rank, places[pair], PROBE_MEET_S))
        latency = both("ping", patience_s, lambda pair, rank: ())
        for sender in (0, 1):
            both("tune", patience_s, lambda pair, rank, sender=sender: (sender, seconds))  # type: ignore[misc]
            rates.append(both("stream", patience_s, lambda pair, rank, sender=sender: (sender,)))  # type: ignore[misc]
        self._replace(failed)
        kind, (out, back) = (one.tier, number, one.loaded), rates
        found = [Measurement(p, *kind, out[p], back[p], latency[p]) for p in back]
        return found + [Measurement(p, *kind, error=why) for p, why in failed.items()]

    def _answers(
        self, asked: Mapping[Pair, list[Any]], deadline_s: float, failed: dict[Pair, str]
    ) -> dict[Pair, Any]:
        """The first end's answers by pair. Pairs of which an end gave none are put into `failed`, with the reason."""
        until = time.monotonic() + deadline_s
        answers = {}
        for pair, refs in asked.items():
            try:
                answers[pair] = ray.get(refs, timeout=max(0.1, until - time.monotonic()))[0]
            except GetTimeoutError:
                failed[pair] = f"no answer within {deadline_s:.0f} s"
            except RayError as error:
                failed[pair] = _first_line(error)
        return answers

    def _replace(self, failed: Mapping[Pair, str]) -> None:
        """New actors for those of failed pairs: one may hang in a collective, which nothing else ends."""
        slots = sorted({end for pair in failed for end in (pair.a, pair.b)})
        resources = (
            {ray_nodes.host_of(n): n["Resources"] for n in ray_nodes.nodes() if n["Alive"]} if slots else {}
        )
        for slot in slots:
            ray.kill(self.actors[slot])
            if slot.node in resources:
                self.actors[slot] = self._prober(slot, resources[slot.node])
            else:
                self.actors.pop(slot)
                self.skipped[slot.node] = "left the cluster meanwhile"
        self._await_ready([slot for slot in slots if slot in self.actors], "its prober did not start again")

    def end(self) -> None:
        for actor in self.actors.values():
            ray.kill(actor)
        self.actors = {}


def free_indexes(node: Node, has: Mapping[str, float], free: Mapping[str, float]) -> list[int]:
    """Up to two accelerators of a node that nobody holds and that are no parts (MIG)."""
    whole = [index for index in range(node.accelerators) if index not in node.partitioned]
    found = [i for i in whole if free.get(f"gpu{i}", 0.0) >= 1 or f"gpu{i}" not in has]
    room = int(free.get("GPU", 0)) if has.get("GPU") else len(found)
    return found[: min(2, room)]


def _first_line(error: BaseException) -> str:
    cause = getattr(error, "cause", None) or error
    lines = str(cause).strip().splitlines() or [""]
    return f"{type(cause).__name__}: {lines[0][:200]}"
