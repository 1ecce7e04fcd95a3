"""One attempt of a gang, as its supervisor knows it: what each rank has said, who has died, what is still awaited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from actors.messages import Note, NoteKind
from orchestrator.lifecycle.reports import RankFacts
from orchestrator.recovery.failure import Failure, NodeLoss, RankDeath, classify
from orchestrator.topology.fabric import Slot


class Attempt:
    def __init__(self, number: int, slots: Sequence[Slot]) -> None:
        self.number = number
        self.slots = tuple(slots)
        self.facts: dict[int, RankFacts] = {}
        self.ready: set[int] = set()
        self.done: set[int] = set()
        self.gone: set[int] = set()
        self.deaths: dict[int, RankDeath] = {}
        self.losses: dict[str, NodeLoss] = {}

    @property
    def world_size(self) -> int:
        return len(self.slots)

    @property
    def all_said_hello(self) -> bool:
        return len(self.facts) == self.world_size

    @property
    def all_ready(self) -> bool:
        return len(self.ready) == self.world_size

    @property
    def finished(self) -> bool:
        """Every rank said that it is done and its process ended with code 0."""
        return len(self.done) == len(self.gone) == self.world_size and not self.deaths

    @property
    def troubled(self) -> bool:
        return bool(self.deaths or self.losses)

    @property
    def awaited(self) -> set[int]:
        """Ranks whose process is not known to be gone."""
        return set(range(self.world_size)).difference(self.gone)

    def take(self, note: Note) -> None:
        """Takes in what a rank said or what became of it."""
        match note.kind:
            case NoteKind.HELLO:
                self.facts[note.rank] = RankFacts(**note.data)
            case NoteKind.READY:
                self.ready.add(note.rank)
            case NoteKind.DONE:
                self.done.add(note.rank)
            case NoteKind.FAILED:
                self.deaths[note.rank] = RankDeath(
                    note.rank,
                    self.slots[note.rank].node,
                    note.at,
                    errors=tuple(note.data["errors"]),
                    traceback=note.data["traceback"],
                    before_ready=note.rank not in self.ready,
                )
            case NoteKind.EXITED:
                self._end(note)
            case _:
                return

    def lose(self, loss: NodeLoss) -> None:
        self.losses[loss.node] = loss

    def failure(self, *, settled: bool) -> Failure | None:
        """The root cause; None while it may still arrive."""
        everybody = len(self.gone) == self.world_size
        return classify(list(self.deaths.values()), list(self.losses.values()), settled=settled or everybody)

    def _end(self, note: Note) -> None:
        self.gone.add(note.rank)
        code = note.data["code"]
        known = self.deaths.get(note.rank)
        if known is not None:
            self.deaths[note.rank] = replace(known, exit_code=code)
        elif code != 0 or note.rank not in self.done:
            self.deaths[note.rank] = RankDeath(note.rank, self.slots[note.rank].node, note.at, exit_code=code)
