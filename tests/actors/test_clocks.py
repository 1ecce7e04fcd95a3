"""Nodes whose clocks differ by minutes: which rank died first is known all the same."""

from __future__ import annotations

from actors.gang import by_our_clock
from actors.messages import Note, NoteKind, Notes
from orchestrator.recovery.failure import RankDeath, classify

NOW = 1_800_000_000.0
MINUTES = 7 * 60.0


def test_the_rank_that_died_first_is_named_though_its_nodes_clock_is_ahead() -> None:
    """Rank 0 was killed; rank 1, on a node whose clock is minutes behind, exits two seconds later."""
    first = Notes(NOW + MINUTES + 1, (Note(1, NOW + MINUTES, 1, 0, NoteKind.EXITED, {"code": -9}),))
    second = Notes(NOW - MINUTES + 3, (Note(1, NOW - MINUTES + 2, 1, 1, NoteKind.EXITED, {"code": 1}),))
    told = [*by_our_clock(first, NOW + 1), *by_our_clock(second, NOW + 3)]
    assert [note.at for note in told] == [NOW, NOW + 2]
    deaths = [RankDeath(note.rank, f"n{note.rank}", note.at, exit_code=note.data["code"]) for note in told]
    failure = classify(deaths, [], settled=True)
    assert failure is not None
    assert (failure.rank, failure.at) == (0, NOW)
