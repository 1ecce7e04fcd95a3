"""Logs of chaos runs -> a page for people.

python -m tests.chaos.summary LOG... > tests/chaos/results/summary.md
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.scenario import Fault, Kind, When

NOTHING = ("nothing to strike", "the job was over before", "not possible")
"""How the account of a fault begins that struck nothing."""


def page(runs: Sequence[Mapping[str, Any]]) -> str:
    """Counts, then a row for each run."""
    violated = [run for run in runs if run["violations"]]
    seconds = [run["seconds"] for run in runs]
    struck, drawn = Counter[str](), Counter[str]()
    for run in runs:
        for fault in run["faults"]:
            drawn[fault["kind"]] += 1
            struck[fault["kind"]] += not fault["struck"].startswith(NOTHING)
    never = [kind.value for kind in Kind if not struck[kind.value]]
    lines = [
        "# Chaos runs",
        "",
        f"{len(runs)} runs, {len(violated)} with a violation; {sum(struck.values())} faults struck of "
        f"{sum(drawn.values())} drawn. A run took {statistics.median(seconds):.0f} s (median), "
        f"{max(seconds):.0f} s at most.",
        "",
        f"Kinds of fault that struck nothing in any run: {', '.join(never) or 'none'}.",
        "",
        "| seed | job | faults | outcome | repairs | seconds | violations |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(_row(run) for run in sorted(runs, key=lambda run: run["seed"])),
    ]
    return "\n".join(lines) + "\n"


def _row(run: Mapping[str, Any]) -> str:
    faults = "; ".join(_told(fault) for fault in run["faults"])
    broken = (
        "; ".join(text.partition("\n")[0][:200].replace("|", "/") for text in run["violations"]) or "none"
    )
    repairs = ", ".join(run["repairs"]) or "none"
    return f"| {run['seed']} | {run['job']} | {faults} | {run['outcome']} | {repairs} | {run['seconds']} | {broken} |"


def _told(fault: Mapping[str, Any]) -> str:
    one = Fault(Kind(fault["kind"]), When(fault["when"]), fault["at"], fault["victim"], fault["for_s"])
    return f"{one}, {fault['struck']}" if fault["struck"].startswith(NOTHING) else str(one)


def main(paths: Iterable[str]) -> None:
    runs = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    sys.stdout.write(page(runs))


if __name__ == "__main__":
    main(sys.argv[1:])
