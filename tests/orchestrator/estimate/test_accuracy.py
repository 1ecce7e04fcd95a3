"""C4: the estimate against published runs, none of which anything was fitted to (docs/accuracy.md)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def accuracy() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("accuracy")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def tables(shared_data: Path) -> Path:
    return shared_data / "tables"


@pytest.mark.parametrize(
    ("table", "rows", "mean", "largest"),
    [
        ("korthikanti", 8, 0.05, 0.12),
        ("sc21", 10, 0.10, None),
        ("memory", 28, 0.08, None),
        ("torchtitan", 15, 0.15, None),
    ],
)
def test_bars(
    accuracy: ModuleType, tables: Path, table: str, rows: int, mean: float, largest: float | None
) -> None:
    found = accuracy.every(tables)[table]
    assert len(found) == rows
    said = "\n".join(f"{row.name}: {row.predicted:.3g} for {row.published:.3g}" for row in found)
    assert accuracy.mean(found) <= mean, said
    assert largest is None or accuracy.largest(found) <= largest, said


def test_calculon_is_not_better(accuracy: ModuleType, tables: Path) -> None:
    found = accuracy.every(tables)["korthikanti"]
    calculon = [float(row["err_pct"]) / 100 for row in accuracy.rows(tables / "calculon_rerun.csv")]
    assert accuracy.mean(found) < sum(calculon) / len(calculon)


def test_the_page_is_what_the_script_writes(accuracy: ModuleType, tables: Path) -> None:
    page = BENCHMARKS.parent / "docs" / "accuracy.md"
    assert page.read_text(encoding="utf-8") == accuracy.page(tables, accuracy.every(tables))
