"""A rank program that starts a process of its own, says its id in its log, and sleeps. Both are deaf to SIGTERM."""

from __future__ import annotations

import signal
import subprocess
import time

from actors.training.context import RankContext
from orchestrator.spec.job import JobSpec


def run(spec: JobSpec, context: RankContext) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the child inherits it
    child = subprocess.Popen(["sleep", "1000"])
    print(f"child {child.pid}", flush=True)
    while not context.reporter.should_stop():
        time.sleep(0.05)
