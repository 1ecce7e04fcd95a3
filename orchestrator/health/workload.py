"""Work that is not evenly spread: running sums per stage, rank and group. Memory does not grow with steps."""

from __future__ import annotations

import numpy as np

from orchestrator.health.layout import Floats, Layout
from orchestrator.health.noise import Noise
from orchestrator.health.recurrence import DEVIATIONS, LEAST
from orchestrator.health.track import Sample
from orchestrator.health.verdict import Imbalance, Uneven, Watch, Watched

STAGE_FACTOR = 1.10
"""Busiest stage over the mean of all, from which stages are called uneven."""
ROTATING_SHARE = 0.05
"""Of all steps, those in which some rank stands out."""
ROTATING_LEAST = 6
MOST_BY_ONE = 0.5
"""A single rank may have so much of a group's slow steps before it is called its own."""
TREND = 0.03
"""Lasting excess that is told although it is below the threshold."""
TREND_STEPS = 16


class Workload:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._stages = sorted(set(layout.stage))
        self._by_stage: Floats = np.zeros(len(self._stages))
        self._saved = 0.0
        count = len(layout)
        self._excess: Floats = np.zeros(count)
        self._reference: Floats = np.zeros(count)
        self._steps = np.zeros(count, dtype=np.int64)
        self._above = np.zeros(count, dtype=np.int64)
        self._slow = np.zeros(count, dtype=np.int64)
        self._longest: Floats = np.zeros(len(layout.groups))
        self._uneven_steps = np.zeros(len(layout.groups), dtype=np.int64)
        self._group_reference: Floats = np.zeros(len(layout.groups))
        self._seen = 0
        self._first_step = 0
        self._last_step = 0

    def observe(self, sample: Sample, beyond: Floats, noise: Noise, blamed: list[int]) -> None:
        """One step of the compute signal; `blamed`: ranks whose slowness is told already."""
        if self._seen == 0:
            self._first_step = sample.step
        self._last_step = sample.step
        self._seen += 1
        with np.errstate(invalid="ignore"):
            slow = beyond > max(LEAST, DEVIATIONS * noise.one_step)
        slow[blamed] = False
        quiet = ~slow & ~np.isnan(sample.relative)
        quiet[blamed] = False
        self._slow += slow
        self._excess[quiet] += sample.excess[quiet]
        self._reference[quiet] += sample.reference[quiet]
        self._steps += quiet
        self._above += quiet & (sample.excess > 0)
        for i, group in enumerate(self._layout.groups):
            if slow[group].any():
                self._longest[i] += float(np.nanmax(sample.excess[group][slow[group]]))
                self._group_reference[i] += float(np.nanmedian(sample.reference[group]))
                self._uneven_steps[i] += 1
        self._stages_of(sample)

    def _stages_of(self, sample: Sample) -> None:
        """A stage's time is the median of its ranks' references: a slow rank is no part of it."""
        if len(self._stages) < 2:
            return
        computed = sample.reference + np.where(sample.historic, sample.excess, 0.0)
        at = np.array(self._layout.stage)
        times = np.array([_median(computed[at == stage]) for stage in self._stages])
        if np.isnan(times).any():
            return
        self._by_stage += times
        self._saved += float(times.max() - times.mean())

    def imbalance(self) -> list[Imbalance]:
        return [*self._uneven_stages(), *self._rotating()]

    def _uneven_stages(self) -> list[Imbalance]:
        total = float(self._by_stage.sum())
        if len(self._stages) < 2 or total <= 0:
            return []
        longest = int(np.argmax(self._by_stage))
        others = (total - float(self._by_stage[longest])) / (len(self._stages) - 1)
        factor = float(self._by_stage[longest]) / others if others > 0 else 1.0
        if factor < STAGE_FACTOR:
            return []
        stage = self._stages[longest]
        places = [i for i, s in enumerate(self._layout.stage) if s == stage]
        return [
            Imbalance(
                Uneven.STAGE,
                tuple(self._layout.ranks[i] for i in places),
                stage,
                self._first_step,
                self._last_step,
                factor,
                self._saved,
                f"stage {stage} computes {factor:.2f} times as long as the other stages do on average, "
                "on every replica: give it fewer layers",
            )
        ]

    def _rotating(self) -> list[Imbalance]:
        found = []
        for i, group in enumerate(self._layout.groups):
            slow = self._slow[group]
            steps = int(self._uneven_steps[i])
            if steps < max(ROTATING_LEAST, ROTATING_SHARE * self._seen) or len(group) < 2:
                continue
            if slow.max() > MOST_BY_ONE * slow.sum():
                continue
            factor = 1 + float(self._longest[i]) / float(self._group_reference[i])
            places = [int(p) for p in group]
            found.append(
                Imbalance(
                    Uneven.ROTATING,
                    tuple(self._layout.ranks[p] for p in places),
                    self._layout.stage[places[0]] if len(self._stages) > 1 else None,
                    self._first_step,
                    self._last_step,
                    factor,
                    float(self._longest[i]),
                    f"in {steps} of {self._seen} steps one rank takes {factor:.2f} times as long, "
                    f"but not the same one: {int((slow > 0).sum())} ranks take turns",
                )
            )
        return found

    def trends(self) -> list[Watch]:
        """Ranks that lose time all along without being slow enough to be called so."""
        found = []
        for place in np.flatnonzero(self._steps >= TREND_STEPS).tolist():
            if self._reference[place] <= 0 or self._above[place] < 0.75 * self._steps[place]:
                continue
            share = float(self._excess[place]) / float(self._reference[place])
            if share >= TREND:
                found.append(
                    Watch(
                        self._layout.ranks[place],
                        Watched.TREND,
                        self._first_step,
                        self._last_step,
                        1 + share,
                        float(self._excess[place]),
                        f"takes {share:.1%} longer than its peers all along, too little or too usual in this job "
                        "to be called slow",
                    )
                )
        return found


def _median(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")
