"""A rank's pulse and stacks as others read them, whatever the rank is doing."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors import processes, pulse, stacks
from actors.pulse import CHANNELS_LIMIT, Pulse
from orchestrator.health.standing import STEP, Channel, Wait


def read(path: Path) -> pulse.Standing:
    return pulse.read(path, rank=3, node="n1")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "1-3.pulse"
    writer = Pulse(path)
    assert (read(path).moves, read(path).phase, read(path).wait) == (0, "", None)
    writer.part("data")
    assert (read(path).moves, read(path).part) == (0, "data"), "a part is no progress"
    writer.finished(6)
    writer.began(STEP)
    writer.part("execution")
    first = writer.channel("7", "dp", [0, 2])
    second = writer.channel("8 2>0", "pp", [2, 0])
    assert writer.channel("7", "dp", [0, 2]) == first != second
    assert [writer.enter(first, b"all-reduce") for _ in range(2)] == [1, 2]
    found = read(path)
    assert (found.step, found.moves, found.phase, found.part) == (6, 2, "step", "execution")
    assert 0 <= found.still_s < 60
    assert found.wait == Wait("7", 2)
    assert found.channels == (
        Channel("7", "dp", range(0, 4, 2), 2, "all-reduce"),
        Channel("8 2>0", "pp", (2, 0), 0, ""),
    )
    writer.leave()
    assert read(path).wait is None
    writer.wait(first, 1)
    assert read(path).wait == Wait("7", 1)


def test_channels_beyond_the_limit_are_not_counted(tmp_path: Path) -> None:
    writer = Pulse(tmp_path / "p.pulse")
    numbers = [writer.channel(str(i), "dp", [0]) for i in range(CHANNELS_LIMIT + 1)]
    assert numbers[-1] == -1
    assert writer.enter(-1, b"send") == 0
    assert read(tmp_path / "p.pulse").wait is None
    assert writer.enter(numbers[-2], b"send") == 1
    assert read(tmp_path / "p.pulse").wait == Wait(str(CHANNELS_LIMIT - 1), 1)


def test_a_place_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    writer = Pulse(tmp_path / "nowhere" / "p.pulse")
    writer.finished(1)
    pulse.write_stacks_on_signal(tmp_path / "nowhere" / "p.pulse")
    assert read(tmp_path / "nowhere" / "p.pulse").phase == ""


@contextmanager
def child(path: Path, work: Callable[[], None]) -> Iterator[int]:
    """A process that answers for its stacks and does `work`."""
    begins, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            pulse.write_stacks_on_signal(path)
            os.write(told, b"x")
            work()
        finally:
            os._exit(1)
    os.read(begins, 1)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def spin() -> None:
    while True:
        pass


def in_c_holding_the_gil() -> None:
    """PyDLL keeps the lock: no other Python code of the process runs meanwhile."""
    while True:
        ctypes.PyDLL(None).sleep(1000)


def in_c_without_the_gil() -> None:
    while True:
        ctypes.CDLL(None).sleep(1000)


@pytest.mark.parametrize("work", [spin, in_c_holding_the_gil, in_c_without_the_gil])
def test_stacks_of_whatever_runs(tmp_path: Path, work: Callable[[], None]) -> None:
    path = tmp_path / "1-0.pulse"
    with child(path, work) as pid:
        deadline = time.monotonic() + 30
        while f"in {work.__name__}" not in (found := stacks.collect({0: (pid, path)}))[0]:
            assert time.monotonic() < deadline, f"it never began its work: {found[0]}"
        again = stacks.collect({0: (pid, path)})
        assert again[0].count("most recent call first") == 1, "what it wrote before is not told again"
        assert f"in {work.__name__}" in again[0]
        assert processes.alive(pid)


def test_a_stopped_process_gives_none_and_its_state_says_why(tmp_path: Path) -> None:
    path = tmp_path / "1-0.pulse"
    with child(path, spin) as pid:
        os.kill(pid, signal.SIGSTOP)
        while processes.state(pid) != "T":
            time.sleep(0.01)
        assert stacks.collect({0: (pid, path)}) == {}


def test_a_process_that_has_no_handler_yet_is_not_signalled(tmp_path: Path) -> None:
    path = tmp_path / "1-0.pulse"
    with child(path, spin) as pid:
        assert stacks.collect({0: (pid, tmp_path / "1-1.pulse")}) == {}
        assert processes.alive(pid)
