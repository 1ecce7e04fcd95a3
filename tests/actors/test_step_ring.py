"""What ranks leave of their steps, read while they write."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from actors.step_reader import MOST, StepReader
from actors.step_ring import ENTRIES, StepRing, read, ring_path
from orchestrator.health.phases import ROW, StepPhases


def phases(value: float) -> StepPhases:
    return StepPhases(*(value + i / 100 for i in range(len(StepPhases._fields))))


def test_entries_are_read_once_and_in_order(tmp_path: Path) -> None:
    ring = StepRing(tmp_path / "a.steps")
    for step in (1, 2, 3):
        ring.write(step, phases(step))
    written, entries = read(tmp_path / "a.steps", after=0)
    assert written == 3
    np.testing.assert_array_equal(entries, [[step, *phases(step)] for step in (1, 2, 3)])
    assert len(read(tmp_path / "a.steps", after=3)[1]) == 0
    ring.write(4, phases(4))
    assert read(tmp_path / "a.steps", after=3)[1][:, 0].tolist() == [4]


def test_what_was_overwritten_is_a_gap(tmp_path: Path) -> None:
    ring = StepRing(tmp_path / "a.steps")
    for step in range(1, ENTRIES + 51):
        ring.write(step, phases(step))
    written, entries = read(tmp_path / "a.steps", after=10)
    assert written == ENTRIES + 50
    # One less than there is room for: the next one may be half written over the oldest.
    assert entries[:, 0].tolist() == list(range(52, ENTRIES + 51))


def test_no_entry_is_torn_while_the_rank_writes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.steps"
    ring = StepRing(path)
    last = 40_000
    writer = threading.Thread(target=lambda: [ring.write(step, phases(step)) for step in range(1, last + 1)])
    writer.start()
    after, newest = 0, 0.0
    while writer.is_alive():
        after, entries = read(path, after=after)
        if len(entries):
            np.testing.assert_allclose(entries[:, 1], entries[:, 0])
            np.testing.assert_allclose(entries[:, -1], entries[:, 0] + (len(StepPhases._fields) - 1) / 100)
            assert np.all(np.diff(entries[:, 0]) == 1)
            assert entries[0, 0] > newest
            newest = entries[-1, 0]
    writer.join()
    assert read(path, after=last - 1)[1][:, 0].tolist() == [last]


def test_nothing_is_kept_without_a_file_or_room(tmp_path: Path) -> None:
    StepRing().write(1, phases(1))
    StepRing(tmp_path / "missing" / "a.steps").write(1, phases(1))
    assert read(tmp_path / "missing" / "a.steps", after=0)[0] == 0
    (tmp_path / "short.steps").write_bytes(b"\0" * 16)
    assert len(read(tmp_path / "short.steps", after=0)[1]) == 0


def test_readers_that_look_at_other_times_have_steps_in_common(tmp_path: Path) -> None:
    pulses = {rank: tmp_path / f"1-{rank}.pulse" for rank in (0, 3)}
    rings = {rank: StepRing(ring_path(path)) for rank, path in pulses.items()}
    for step in range(1, 101):
        for ring in rings.values():
            ring.write(step, phases(step))
    many, few = StepReader(), StepReader()
    rows = many.look(pulses)
    assert rows.shape[1] == len(ROW)
    assert rows[:, 0].tolist() == sorted(rows[:, 0].tolist())
    of_rank_0 = rows[rows[:, 0] == 0, 1]
    assert MOST / 2 < len(of_rank_0) <= MOST
    assert of_rank_0.tolist() == [step for step in range(1, 101) if step % 32 == 0]
    few.look({3: pulses[3]})
    rings[3].write(101, phases(101))
    assert few.look({3: pulses[3]})[:, :2].tolist() == [[3.0, 101.0]]
    ring_path(pulses[3]).unlink()
    assert len(few.look({3: pulses[3]})) == 0
