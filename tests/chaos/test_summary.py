"""The page of a log counts what struck and what did not, and shows every violation."""

from __future__ import annotations

from typing import Any

from tests.chaos.summary import page


def run(seed: int, struck: str, violations: list[str]) -> dict[str, Any]:
    fault = {"kind": "kill-rank", "when": "step", "at": 3, "victim": 1, "for_s": None, "struck": struck}
    return {
        "seed": seed,
        "job": "zero",
        "faults": [fault],
        "outcome": "succeeded",
        "repairs": ["in-place"],
        "seconds": 10.0 + seed,
        "violations": violations,
    }


def test_what_struck_is_told_from_what_did_not() -> None:
    told = page(
        [run(2, "SIGKILL to rank process 7", []), run(1, "nothing to strike", ["losses: step 4 | 5"])]
    )
    assert "2 runs, 1 with a violation; 1 faults struck of 2 drawn." in told
    assert "12 s at most" in told
    rows = told.splitlines()[-2:]
    assert rows[0] == (
        "| 1 | zero | kill-rank 1 (step 3), nothing to strike | succeeded | in-place | 11.0 | losses: step 4 / 5 |"
    )
    assert rows[1] == "| 2 | zero | kill-rank 1 (step 3) | succeeded | in-place | 12.0 | none |"
    assert "kill-head" in told.partition("Kinds of fault that struck nothing")[2].splitlines()[0]


def test_kinds_that_struck_are_not_among_those_that_never_did() -> None:
    told = page([run(2, "SIGKILL to rank process 7", [])])
    assert "kill-rank" not in told.partition("Kinds of fault that struck nothing")[2].splitlines()[0]
