from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.spec.reference import fields, table, with_table

PAGE = Path(__file__).resolve().parents[3] / "docs" / "job-spec.md"


def test_the_page_names_every_field_as_it_is() -> None:
    """`python -m orchestrator.spec.reference docs/job-spec.md` after every change of a section."""
    text = PAGE.read_text()
    assert with_table(text) == text


def test_every_field_has_a_meaning_and_limits() -> None:
    for field in fields():
        assert field.meaning, f"{field.path}: give it a docstring in sections.py"
        assert field.section or field.limits, field.path


def test_no_text_ends_a_cell() -> None:
    for row in table().splitlines():
        assert row.replace("\\|", "").count("|") == 5, row


def test_limits_are_those_of_the_schema() -> None:
    found = {field.path: (field.default, field.limits) for field in fields()}
    assert found["name"] == ("required", "at most 63 characters")
    assert found["training.steps"] == ("required", "1 to 100,000,000")
    assert found["training.clip_norm"] == ("`1.0`", "above 0, at most 1,000,000,000,000")
    assert found["training.optimizer.betas"] == ("`[0.9, 0.95]`", "2 numbers, 0 or more, below 1 each")
    assert found["parallelism.reshard_after_forward"] == ("`true`", "true or false or 2 to 131,072")
    assert found["placement.tp.mode"] == ('`"required"`', "`required`, `preferred`")


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="must hold the lines"):
        with_table("# Job file\n")
