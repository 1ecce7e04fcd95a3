"""The processes that `atoll serve` keeps alive: started, watched, started again within a budget, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from actors.processes import die_with_parent
from orchestrator.recovery.timeouts import CONTROLLER_END_S

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 15.0
BUDGET = 10
BUDGET_WINDOW_S = 600.0
"""A child may die BUDGET times within BUDGET_WINDOW_S seconds; then something is wrong that no restart puts right."""
END_PATIENCE_S = CONTROLLER_END_S
"""The API needs a few seconds, the controller as long as the cluster lets it wait."""


@dataclass
class Child:
    """One process. It dies with this one, however this one dies."""

    name: str
    arguments: Sequence[str]
    """What follows the interpreter: `-m`, `api`."""
    environment: Mapping[str, str | None]
    """Put over this process's environment; None takes a variable away."""
    process: subprocess.Popen[bytes] | None = None
    deaths: list[float] = field(default_factory=list)
    """Monotonic seconds of the deaths within the window."""
    due: float = 0.0
    """When it is to be started again."""

    def start(self) -> None:
        parent = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, *self.arguments],
            env=merged(os.environ, self.environment),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches this process alone, which ends the children in order
            preexec_fn=lambda: die_with_parent(parent),
        )

    def tend(self, now: float) -> str | None:
        """Looks after the process; a sentence when there is news."""
        if self.process is not None:
            code = self.process.poll()
            if code is None:
                return None
            self.process = None
            self.deaths = [at for at in self.deaths if now - at < BUDGET_WINDOW_S] + [now]
            delay_s = min(FIRST_DELAY_S * 2 ** (len(self.deaths) - 1), LONGEST_DELAY_S)
            self.due = now + delay_s
            return f"{self.name} ended ({ending(code)}); starting it again in {delay_s:g} s"
        if now >= self.due:
            self.start()
        return None

    @property
    def is_hopeless(self) -> bool:
        return len(self.deaths) > BUDGET

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def restart(self, environment: Mapping[str, str | None]) -> None:
        """Ends the process and starts it with another environment; not counted as a death."""
        end([self])
        self.environment = environment
        self.start()


def merged(base: Mapping[str, str], over: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in {**base, **over}.items() if value is not None}


def end(children: Sequence[Child]) -> None:
    """SIGTERM to all, then SIGKILL to what has not ended within END_PATIENCE_S."""
    living = [child.process for child in children if child.process is not None]
    for process in living:
        process.terminate()
    deadline = time.monotonic() + END_PATIENCE_S
    for process in living:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for child in children:
        child.process = None


def ending(code: int) -> str:
    """`exit code 1`, or the signal's name."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
