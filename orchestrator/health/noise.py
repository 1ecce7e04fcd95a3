"""What is normal in this job: each subject's lasting offset, the noise of a step, and how long noise lasts."""

from __future__ import annotations

import math
import warnings

import numpy as np

from orchestrator.health.layout import Floats

FLOOR = 0.015
"""Noise is never taken to be below this share of a step's compute."""
OFFSET_LIMIT = 0.10
"""A lasting difference well above this is a fault however uneven the job is."""
SPREAD_FACTOR = 3.0
"""An offset is normal up to so many times the spread among the others."""
RENEWED_EVERY = 8
"""Steps between two estimates, four times as many once there are `SETTLED` steps."""
SETTLED = 64
GAUSSIAN_MAD = 1.4826
SPREAD_QUANTILE = 0.85
"""Of the others' excesses over the median. Three of ten ranks on slower hosts (PAI) are how the job is; one or two
of sixteen are not."""
GAUSSIAN_QUANTILE = 1.036
"""The same quantile of a normal variable."""


class Noise:
    """Estimates from the last `window` quiet excesses of each subject (a rank or a link).

    All are quantiles, which a few subjects at fault do not spoil. Noise of real
    jobs lasts (in the PAI trace neighbouring measurements correlate by 0.7), and a cumulative sum that takes it for
    independent raises false alarms; so a step's noise is widened by sqrt((1+rho)/(1-rho)), the factor by which the
    mean of a first-order autoregressive series varies more (Johnson & Bagshaw, "The effect of serial correlation on
    the performance of CUSUM tests", Technometrics 16, 1974).
    """

    def __init__(self, subjects: int, window: int) -> None:
        self._quiet = np.full((window, subjects), np.nan)
        self._next = 0
        self.steps = 0
        self.offset: Floats = np.zeros(subjects)
        """Normal excess of each subject."""
        self.one_step = FLOOR
        """Deviation of a single step."""
        self.lasting = FLOOR
        """The same, widened by how long noise lasts."""

    @property
    def ready(self) -> bool:
        return self.steps >= RENEWED_EVERY

    def add(self, excess: Floats) -> None:
        """One step; NaN for subjects that are not quiet or not there."""
        self._quiet[self._next] = excess
        self._next = (self._next + 1) % len(self._quiet)
        self.steps += 1
        if self.steps % (RENEWED_EVERY if self.steps <= SETTLED else 4 * RENEWED_EVERY) == 0:
            self.renew()

    def renew(self) -> None:
        kept = min(self.steps, len(self._quiet))
        in_order = np.roll(self._quiet, -self._next, axis=0)[-kept:]
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", RuntimeWarning
            )  # a column of NaN has the median NaN: nothing is known
            middle = np.nanmedian(in_order, axis=0)
        known = ~np.isnan(middle)
        if not known.any():
            return
        middle = np.where(known, middle, 0.0)
        limit = np.minimum(SPREAD_FACTOR * _spread_of_others(middle, known), OFFSET_LIMIT)
        self.offset = _tolerated(middle, limit)
        rest = in_order - middle
        few = math.sqrt(1 + RENEWED_EVERY / kept)  # a short record shows too little of slow noise
        self.one_step = max(FLOOR, few * GAUSSIAN_MAD * float(np.nanmedian(np.abs(rest))))
        rho = _correlation(rest, 5 * self.one_step)
        self.lasting = max(FLOOR, self.one_step * math.sqrt((1 + rho) / (1 - rho)))


def _tolerated(middle: Floats, limit: Floats) -> Floats:
    """The part of a lasting difference that is normal: all of it up to the limit, none from twice the limit."""
    size: Floats = np.minimum(np.abs(middle), np.maximum(0.0, 2 * limit - np.abs(middle)))
    return np.sign(middle) * size


def _spread_of_others(middle: Floats, known: np.typing.NDArray[np.bool_]) -> Floats:
    """For each subject, a high quantile of the others' excess over the median, as a standard deviation."""
    above = np.where(known, np.maximum(0.0, middle - np.median(middle[known])), np.inf)
    order = np.argsort(above, kind="stable")
    ordered = above[order]
    others = int(known.sum()) - 1
    spread = np.full(len(middle), FLOOR)
    if others < 1:
        return spread
    place = np.arange(len(middle))
    at = np.full(len(middle), math.ceil(SPREAD_QUANTILE * (others - 1)))
    spread[order] = ordered[np.minimum(at + (at >= place), others)]
    return np.maximum(np.where(np.isfinite(spread), spread, 0.0), 0.0) / GAUSSIAN_QUANTILE


def _correlation(rest: Floats, limit: float) -> float:
    """Of neighbouring steps, pooled, outliers cut; within 0 and 0.9."""
    cut = np.clip(rest, -limit, limit)
    before, after = cut[:-1], cut[1:]
    both = ~np.isnan(before) & ~np.isnan(after)
    if int(both.sum()) < 2 * RENEWED_EVERY:
        return 0.5
    whole = float(np.sum(cut[~np.isnan(cut)] ** 2)) / int((~np.isnan(cut)).sum())
    if whole <= 0:
        return 0.0
    return min(0.9, max(0.0, float(np.mean(before[both] * after[both])) / whole))
