"""How well `atoll straggler` finds faults put into real noise: `python benchmarks/straggler.py DATA`.

DATA is the folder of public inputs. Scores two sets that share no recording and no seed (see straggler_faults.py):
one the constants were chosen on, one that is only scored. A finding is right when it names a faulty rank in steps
that overlap the fault. Precision: right findings of all. Recall: faults found of all. Latency: measured steps from
the first faulty one to the one at which a live detector says so. False flags: wrong findings for 10,000 steps of a
healthy rank.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from report import Verdict, conclude
from straggler_faults import Case, Set, cases, healthy_runs

from orchestrator.health.straggler import StragglerDetector
from orchestrator.health.verdict import Straggler

SEEDS = {Set.DEVELOPMENT: 11, Set.HELD_OUT: 20_260}
COUNT = 240
"""Faults of a set; a third as many runs without one are added."""


@dataclass(frozen=True, slots=True)
class Score:
    source: str
    kind: str
    factor: float
    found: bool
    right: int
    wrong: int
    latency: int | None
    same_kind: bool
    healthy_rank_steps: int


def score(case: Case) -> Score:
    run, fault = case.run, case.fault
    detector = StragglerDetector(run.layout)
    for step, seconds in zip(run.steps, run.seconds, strict=True):
        detector.observe(step, seconds)
    findings = detector.verdict().stragglers
    right = [one for one in findings if _is_right(one, case)]
    named = {rank for one in right for rank in (one.rank, one.peer) if rank in fault.ranks}
    found = bool(fault.ranks) and (bool(named) if fault.any_of else named == fault.ranks)
    touched = fault.last - fault.first + 1 if fault.ranks else 0
    index = {step: i for i, step in enumerate(run.steps)}
    return Score(
        source=run.name,
        kind=fault.kind,
        factor=fault.factor,
        found=found,
        right=len(right),
        wrong=len(findings) - len(right),
        latency=max(index[one.detected_step] for one in _first_of_each(right)) - fault.first
        if found
        else None,
        same_kind=found and all(one.kind == fault.kind for one in _first_of_each(right)),
        healthy_rank_steps=len(run.steps) * len(run.layout) - touched * len(fault.ranks),
    )


def _is_right(one: Straggler, case: Case) -> bool:
    first, last = case.run.steps[case.fault.first], case.run.steps[case.fault.last]
    return bool({one.rank, one.peer} & case.fault.ranks) and one.from_step <= last and one.to_step >= first


def _first_of_each(right: Sequence[Straggler]) -> list[Straggler]:
    firsts: dict[int, Straggler] = {}
    for one in right:
        firsts.setdefault(one.rank, one)
    return list(firsts.values())


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    right, wrong = sum(s.right for s in scores), sum(s.wrong for s in scores)
    healthy = sum(s.healthy_rank_steps for s in scores)
    faults = [s for s in scores if s.factor > 1]
    groups: dict[str, list[Score]] = defaultdict(list)
    for s in faults:
        groups[f"{s.factor:g}"].append(s)
        groups[f"{s.kind} {s.factor:g}"].append(s)
        groups[f"{s.source} {s.factor:g}"].append(s)
    return {
        "faults": len(faults),
        "runs": len(scores),
        "precision": right / max(1, right + wrong),
        "false_flags_per_10000": wrong / healthy * 10_000,
        "healthy_rank_steps": healthy,
        "wrong_by_kind": dict(Counter({s.kind: 0 for s in scores}) + Counter(_wrong(scores))),
        "by": {name: _of(group) for name, group in sorted(groups.items())},
    }


def _wrong(scores: Sequence[Score]) -> list[str]:
    return [f"{s.source} {s.kind}" for s in scores for _ in range(s.wrong)]


def _of(group: Sequence[Score]) -> dict[str, float]:
    latencies = [s.latency for s in group if s.latency is not None]
    return {
        "faults": len(group),
        "recall": sum(s.found for s in group) / len(group),
        "latency_median": median(latencies) if latencies else float("nan"),
        "latency_most": max(latencies, default=-1),
        "same_kind": sum(s.same_kind for s in group) / max(1, sum(s.found for s in group)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of public inputs")
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--development-only", action="store_true", help="for choosing constants: do not look at the rest"
    )
    only.add_argument("--held-out-only", action="store_true", help="the other set alone")
    parser.add_argument("--part", metavar="I/N", help="only the Ith of N parts; its samples go to --samples")
    parser.add_argument("--samples", type=Path, help="file of the samples of a part")
    parser.add_argument(
        "--join", type=Path, nargs="+", metavar="FILE", help="samples of all parts of one set"
    )
    given = parser.parse_args()
    missed = 0
    for which in Set:
        if which is (
            Set.HELD_OUT if given.development_only else Set.DEVELOPMENT if given.held_out_only else None
        ):
            continue
        if given.join:
            scores = [Score(**one) for path in given.join for one in json.loads(path.read_text())]
        else:
            part, parts = map(int, given.part.split("/")) if given.part else (1, 1)
            chosen = cases(healthy_runs(given.data, which), COUNT, SEEDS[which])[part - 1 :: parts]
            scores = [score(case) for case in chosen]
        if given.part:
            given.samples.write_text(json.dumps([asdict(s) for s in scores]))
            continue
        found = summary(scores)
        show(which, found)
        missed |= bars(which, found, [asdict(s) for s in scores])
    return missed


def show(which: str, of: dict[str, Any]) -> None:
    print(
        f"{which}: {of['faults']} faults in {of['runs']} runs, precision {of['precision']:.4f}, "
        f"{of['false_flags_per_10000']:.3f} false flags per 10,000 of {of['healthy_rank_steps']:,} healthy rank-steps"
    )
    print(f"  wrong: {of['wrong_by_kind']}")
    for name, row in of["by"].items():
        print(
            f"  {name:18} {row['faults']:4} faults  recall {row['recall']:.3f}  latency {row['latency_median']:.0f} "
            f"(most {row['latency_most']})  kind right {row['same_kind']:.2f}"
        )


def bars(which: Set, found: dict[str, Any], samples: list[dict[str, object]]) -> int:
    """Writes the result; 1 when a bar is missed."""
    by = found["by"]
    of_bar = {
        "precision": 0.98 / max(1e-9, found["precision"]),
        "recall at 1.25": 0.98 / max(1e-9, by["1.25"]["recall"]),
        "recall at 1.10": 0.90 / max(1e-9, by["1.1"]["recall"]),
        "latency at 1.25": by["1.25"]["latency_most"] / 20,
        "false flags": found["false_flags_per_10000"] / 1.0,
    }
    verdict = Verdict(
        f"straggler_{which.name.lower()}", "worst of its bars", max(of_bar.values()), 1.0, at_least=False
    )
    setting = {"faults": COUNT, "seed": SEEDS[which], "shares_of_bars": of_bar, "summary": found}
    return conclude(verdict, setting=setting, samples=samples)


if __name__ == "__main__":
    sys.exit(main())
