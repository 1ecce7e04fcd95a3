"""Reading parts of a log file."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors import rank_logs


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "rank.log"
    path.write_bytes(b"one\ntwo\nthree\n")
    return path


@pytest.mark.parametrize(
    ("offset", "limit", "start", "data"),
    [
        (0, 100, 0, b"one\ntwo\nthree\n"),
        (4, 3, 4, b"two"),
        (-6, 100, 8, b"three\n"),
        (-100, 4, 0, b"one\n"),
        (99, 10, 14, b""),
        (0, -5, 0, b""),
    ],
)
def test_read(log: Path, offset: int, limit: int, start: int, data: bytes) -> None:
    chunk = rank_logs.read(log, attempt=2, rank=3, offset=offset, limit=limit)
    assert (chunk.offset, chunk.data, chunk.size, chunk.attempt, chunk.rank) == (start, data, 14, 2, 3)


def test_read_is_bounded(log: Path) -> None:
    log.write_bytes(b"x" * (rank_logs.READ_LIMIT_BYTES + 5))
    chunk = rank_logs.read(log, attempt=1, rank=0, offset=0, limit=1 << 40)
    assert len(chunk.data) == rank_logs.READ_LIMIT_BYTES


def test_log_not_begun_is_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "none.log", tmp_path / "file" / "none.log"):
        chunk = rank_logs.read(path, attempt=1, rank=0, offset=-10, limit=10)
        assert (chunk.data, chunk.size) == (b"", 0)


def test_a_log_that_cannot_be_read_keeps_no_other_from_being_told(tmp_path: Path) -> None:
    tail = rank_logs.tail(tmp_path, attempt=1, rank=3, limit=10)
    assert tail.rank == 3
    assert "cannot be read: [Errno 21] Is a directory" in tail.text


def test_tail_leaves_a_cut_line_out(log: Path) -> None:
    tail = rank_logs.tail(log, attempt=1, rank=0, limit=8)
    assert tail.text == "three\n"
    assert tail.size_bytes == 14
    assert rank_logs.tail(log, attempt=1, rank=0, limit=100).text == "one\ntwo\nthree\n"


def test_tails_of_a_large_gang_stay_small() -> None:
    assert rank_logs.tail_bytes(8) == 64 << 10
    assert rank_logs.tail_bytes(10_000) == 4 << 10
