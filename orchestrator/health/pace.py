"""How long the steps of a job take, and so how long one may take before the gang is taken for hung.

A verdict that is wrong costs more than one that comes late: every bound is the most lenient of several, and each
verdict doubles them until the job is past that step, so that one which is only slow gets through.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from statistics import median

from orchestrator.health.standing import EVALUATION, STEP
from orchestrator.recovery.timeouts import Timeouts

WARM_STEPS = 3
"""First steps of an attempt, which compile, allocate and connect."""
STEPS_KEPT = 200
LONGEST_FACTOR = 3.0
"""A step may take this many times the longest of those kept, times between steps included."""
EVALUATION_FACTOR = 10.0
"""A batch of an evaluation may take this many times what a step may."""
CONFIRM_SHARE = 1 / 6
"""A suspicion is confirmed after this share of the shortest bound: whole machines may have been frozen for a while."""


class Pace:
    def __init__(self, times: Timeouts) -> None:
        self._times = times
        self._recent: deque[float] = deque(maxlen=STEPS_KEPT)
        self._steps_of_attempt = 0
        self._longest_warm_s = 0.0
        self._patience = 1.0
        self._condemned_step = -1

    def begin_attempt(self) -> None:
        """Fresh ranks warm up again."""
        self._steps_of_attempt = 0

    def took(self, step: int, step_s: float) -> None:
        """`step` steps are finished, the last one `step_s` after the one before it."""
        self._steps_of_attempt += 1
        if step > self._condemned_step:
            self._patience = 1.0
        self._recent.append(step_s)
        if self._steps_of_attempt <= WARM_STEPS:
            self._longest_warm_s = max(self._longest_warm_s, step_s)

    def condemned(self, step: int) -> None:
        """The gang was taken for hung after `step` finished steps."""
        self._patience *= 2
        self._condemned_step = step + 1

    def limit_s(self, phases: Collection[str]) -> float:
        """Longest time in which no rank gets on, while the ranks are in `phases`: that of the most patient phase."""
        return max(map(self._limit_s, phases), default=self._times.silence_s)

    @property
    def confirm_s(self) -> float:
        """Between a suspicion and the verdict."""
        usual = median(self._recent) if self._recent else 0.0
        return max(CONFIRM_SHARE * self._times.hang_after_s, min(2 * usual, self._times.hang_after_s))

    def _limit_s(self, phase: str) -> float:
        if phase not in (STEP, EVALUATION) or not self._recent:
            return self._times.silence_s
        usual = self._times.hang_factor * median(self._recent)
        bound = max(self._times.hang_after_s, usual, LONGEST_FACTOR * max(self._recent))
        if self._steps_of_attempt < WARM_STEPS:
            if self._longest_warm_s == 0.0 or len(self._recent) < WARM_STEPS:
                return self._times.silence_s
            bound = max(bound, self._times.hang_factor * self._longest_warm_s)
        if phase == EVALUATION:
            bound *= EVALUATION_FACTOR
        return min(self._times.silence_s, self._patience * bound)
