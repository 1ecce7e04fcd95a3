"""How much longer each rank takes than its peers: a reference that the rank itself has no part in.

A rank is held against the middle of the *other* members of its group. With the whole group's median a rank of a
group of two would be half of its own reference, and a fault of 10 % would look like 5 %.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.health.layout import Floats

MEDIAN_UP_TO = 6
"""Others, of which one more at fault would count too much in a mean."""


def others_middle(values: Floats, *, upper: bool = False) -> Floats:
    """For each entry of the last axis the mean of the middle half of all other ones. NaN is left out; NaN where no
    other is left.

    A quarter may be at fault on either side before it shows. Of up to six others it is their median; of more, the
    mean of several is steadier than the one in the middle, which jumps where ranks fall into two camps.

    upper: the upper half of that, so of two others the larger one, not their mean.
    """
    order = np.argsort(values, axis=-1, kind="stable")  # NaN last
    ordered = np.nan_to_num(np.take_along_axis(values, order, axis=-1))
    known = np.count_nonzero(~np.isnan(values), axis=-1, keepdims=True)
    nothing = np.zeros((*values.shape[:-1], 1))
    sums = np.concatenate([nothing, np.cumsum(ordered, axis=-1)], axis=-1)
    place = np.arange(values.shape[-1])
    others = known - (place < known)
    cut = np.where(others <= MEDIAN_UP_TO, (others - 1) // 2, -(-others // 4))
    end = others - cut
    first = others // 2 if upper else cut
    # places among the others; in `ordered` those from the entry itself on are one further
    low = np.maximum(0, np.minimum(first + (place <= first), known))
    high = np.minimum(end + (place < end), known)
    kept = np.take_along_axis(sums, high, axis=-1) - np.take_along_axis(sums, low, axis=-1)
    kept -= np.where((place > first) & (place < end), ordered, 0.0)
    found = np.empty_like(ordered)
    np.put_along_axis(found, order, np.where(others > 0, kept / (end - first), np.nan), axis=-1)
    return found


def stacked(groups: Sequence[NDArray[np.intp]]) -> list[NDArray[np.intp]]:
    """Groups of one size as one array, (groups, members)."""
    sizes = sorted({len(group) for group in groups})
    return [np.array([group for group in groups if len(group) == size]) for size in sizes]


def references(values: Floats, stacks: Sequence[NDArray[np.intp]], *, upper: bool = False) -> Floats:
    """`others_middle` inside each group. values: (..., ranks)"""
    found = np.full(values.shape, np.nan)
    for groups in stacks:
        found[..., groups] = others_middle(values[..., groups], upper=upper)
    return found


class History:
    """What each group is expected to take, from its own first steps and from what the rest of the job does now.

    For a rank without peers (a pipeline without data parallelism), and for a group that is slow as a whole (all on
    one node). Work that grows for all groups alike, as with longer sequences, is no fault of any.
    """

    LEARNED = 8
    """Steps a group's share of the work is learned from."""
    SHIFT = 1.10
    """A whole group counts as slow from here."""

    def __init__(self, groups: Sequence[NDArray[np.intp]]) -> None:
        self._groups = groups
        self._first: list[Floats] = []
        self._base: Floats | None = None

    def expected(self, computed: Floats) -> Floats:
        """Seconds each group should take this step; NaN while it is learned and where the job is one group."""
        now = np.array([_median(computed[group]) for group in self._groups])
        if self._base is None:
            self._first.append(now)
            if len(self._first) < self.LEARNED:
                return np.full(len(now), np.nan)
            self._base = np.array([_median(column) for column in np.array(self._first).T])
            self._first = []
        shift = now / np.where(self._base > 0, self._base, np.nan)
        known = np.sort(shift[~np.isnan(shift)])
        if len(known) < 2:
            return np.full(len(now), np.nan)
        expected: Floats = self._base * known[(len(known) - 1) // 2]
        return expected

    def mended(self, computed: Floats, peers: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """References with history where peers cannot tell, and which ranks have such a one."""
        expected = self.expected(computed)
        found = peers.copy()
        from_history = np.zeros(len(peers), dtype=np.bool_)
        for group, reference in zip(self._groups, expected, strict=True):
            if np.isnan(reference):
                continue
            if len(group) == 1 or _median(computed[group]) > self.SHIFT * reference:
                found[group] = reference
                from_history[group] = True
        return found, from_history


def _median(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")
