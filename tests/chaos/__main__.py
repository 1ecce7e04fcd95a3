"""Runs seeded scenarios on a real control plane and cluster, and writes a line of JSON for each.

    python -m tests.chaos --runs 200 --seed 0 --log .chaos/runs.jsonl [--for-s 270] [--continue]

Ends with 1 when an invariant was violated, with 3 when the site could not be kept alive.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from tests.chaos import links, weights
from tests.chaos.invariants import Undisturbed, resharded, violations
from tests.chaos.run import Observed, run
from tests.chaos.scenario import STEPS, Scenario, scenario
from tests.chaos.site import Site, SiteError, site

OWN_NETWORK = "--in-own-network"
LONGEST_RUN_S = 40.0
"""No run is begun with less time left than most take."""


def in_own_network() -> None:
    """Begins anew in a network namespace, where links can be slowed and cut, and a mount namespace, with which a small
    disk goes; goes on here where that is refused."""
    command = ["unshare", "--net", "--mount", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if os.geteuid() == 0 and not subprocess.run([*command, "true"], capture_output=True).returncode:
        os.execvp(command[0], [*command, sys.executable, "-m", "tests.chaos", OWN_NETWORK, *sys.argv[1:]])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seeds", help="these instead, with commas between")
    parser.add_argument("--log", type=Path, default=Path(".chaos/runs.jsonl"))
    parser.add_argument(
        "--continue", dest="goes_on", action="store_true", help="leave out seeds that the log has"
    )
    parser.add_argument("--for-s", type=float, default=float("inf"), help="begin no run after this time")
    parser.add_argument(OWN_NETWORK, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.in_own_network:
        in_own_network()
    else:
        links.prepare()
    options.log.parent.mkdir(parents=True, exist_ok=True)
    if not options.goes_on:
        options.log.unlink(missing_ok=True)
    done = (
        {json.loads(line)["seed"] for line in options.log.read_text().splitlines()}
        if options.goes_on and options.log.exists()
        else set()
    )
    seeds = (
        [int(text) for text in options.seeds.split(",")]
        if options.seeds
        else range(options.seed, options.seed + options.runs)
    )
    ends = time.monotonic() + options.for_s
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        with site(own_network=options.in_own_network) as here:
            here.make_whole()
            return campaign(here, [scenario(seed) for seed in seeds if seed not in done], options.log, ends)
    except SiteError as error:
        print(f"the site is of no use any more: {error}", file=sys.stderr)
        return 3


def campaign(here: Site, scenarios: Sequence[Scenario], log: Path, ends: float) -> int:
    """Runs them until the time is over; 1 when an invariant was violated."""
    violated = 0
    for number, one in enumerate(scenarios):
        if time.monotonic() + LONGEST_RUN_S > ends:
            print(f"time is over: {len(scenarios) - number} of {len(scenarios)} runs are left")
            break
        began = time.monotonic()
        here.make_whole()
        undisturbed = undisturbed_run(here, one.job, log.parent)
        ready_s = time.monotonic() - began
        seen = run(here, one)
        found = violations(seen, undisturbed)
        violated += bool(found)
        line = summary(seen, found, ready_s)
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{one}: {line['outcome']} after {seen.seconds:.1f} s, {line['repairs']}", flush=True)
        for what in found:
            print(f"    VIOLATED {what}", flush=True)
        tidy(here, seen, keep=bool(found), folder=log.parent)
    return int(violated > 0)


def undisturbed_run(here: Site, job: str, folder: Path) -> Undisturbed:
    """From the file of an earlier run, or made now. SiteError when a run that nothing struck is not right."""
    path = folder / f"undisturbed-{job}.pt"
    if path.exists():
        return Undisturbed(**torch.load(path, weights_only=False))
    seen = run(here, Scenario(-1, job, ()))
    if found := violations(seen, None):
        raise SiteError(f"a run of {job} that nothing struck: {found}")
    made = Undisturbed(
        {row.step: row.loss for row in seen.metrics}, weights.read(seen.checkpoints / f"step-{STEPS:08d}")
    )
    torch.save({"losses": made.losses, "weights": made.weights}, path)
    here.make_whole()
    return made


def summary(seen: Observed, found: Iterable[str], ready_s: float) -> dict[str, Any]:
    """The line of a run."""
    return {
        "seed": seen.scenario.seed,
        "job": seen.scenario.job,
        "faults": [
            {**asdict(fault), "struck": struck}
            for fault, struck in zip(seen.scenario.faults, seen.struck, strict=True)
        ],
        "outcome": seen.job.state if seen.ended else f"not over: {seen.job.state}",
        "attempts": len(seen.attempts),
        "supervisors": len(seen.placements),
        "repairs": [
            event.data.get("rung", event.kind)
            for event in seen.events
            if event.kind in ("repair-started", "supervisor-lost")
        ],
        "resharded": resharded(seen),
        "seconds": round(seen.seconds, 1),
        "ready_s": round(ready_s, 1),
        "violations": list(found),
    }


def tidy(here: Site, seen: Observed, *, keep: bool, folder: Path) -> None:
    """Gives the small disk back; of a run that was not right the story is kept."""
    if keep:
        story = [
            f"{event.at} {event.incarnation}/{event.seq} {event.kind} {event.attempt} {event.message} {event.data}"
            for event in seen.events
        ]
        story += ["", here.log()]
        (folder / f"seed-{seen.scenario.seed}.txt").write_text("\n".join(story))
    shutil.rmtree(seen.checkpoints.parent, ignore_errors=True)
    seen.witness.path.unlink(missing_ok=True)


if __name__ == "__main__":
    try:
        code = main()
    except Exception:
        traceback.print_exc()
        code = 3
    sys.exit(code)
