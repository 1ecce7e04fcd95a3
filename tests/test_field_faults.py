"""Faults that users of similar systems reported: each row about recovery, checkpoints and stragglers has a test that
bears its number."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
AREAS = {"recovery", "checkpoint", "straggler"}
_ROW = re.compile(r"^\| (\d+) \| (\w+) \|", re.MULTILINE)


def named_rows() -> set[int]:
    """Rows that the names of tests bear: `test_row_60_…`, `test_rows_8_and_44_…`."""
    found: set[int] = set()
    for file in TESTS.rglob("test_*.py"):
        for name in re.findall(r"\bdef test_rows?_([0-9_and]+)", file.read_text()):
            found.update(int(number) for number in re.findall(r"\d+", name))
    return found


def test_every_row_has_a_test_that_bears_its_number(shared_data: Path) -> None:
    table = (shared_data / "field-faults.md").read_text()
    rows = {int(number) for number, area in _ROW.findall(table) if area in AREAS}
    assert len(rows) == 21
    assert rows - named_rows() == set()
