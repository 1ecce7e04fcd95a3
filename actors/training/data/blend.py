"""Sources mixed by weight: which source a sequence of the job comes from, and the tokens it holds."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from actors.training.data.files import SourceError

Tokens = npt.NDArray[Any]
Ranges = npt.NDArray[np.int64]
COUNTED_TOKENS = 1 << 24
"""Tokens of a source that its frequencies are counted on."""


class TokenStream:
    """Ranges of an array, end to end: what a part of a source trains on. Nothing is read before it is asked for."""

    def __init__(self, tokens: Tokens, begins: Ranges, ends: Ranges, *, name: str, vocab_size: int) -> None:
        """`name` is the source's, for messages."""
        self._tokens, self._begins, self.name = tokens, begins, name
        self._vocab_size = vocab_size
        self._before = np.concatenate(([0], np.cumsum(ends - begins)))

    def __len__(self) -> int:
        return int(self._before[-1])

    def read(self, start: int, count: int) -> npt.NDArray[np.int64]:
        """`count` ids from position `start` of the stream on. SourceError when one is no token: the file is damaged."""
        out = np.empty(count, np.int64)
        filled, at = 0, int(np.searchsorted(self._before, start, side="right")) - 1
        while filled < count:
            within = start + filled - int(self._before[at])
            take = min(count - filled, int(self._before[at + 1]) - int(self._before[at]) - within)
            first = int(self._begins[at]) + within
            out[filled : filled + take] = self._tokens[first : first + take]
            filled, at = filled + take, at + 1
        if count and out.max() >= self._vocab_size:
            raise SourceError(
                f"{self.name}: holds the token {out.max()}, but data.vocab_size is {self._vocab_size}: the tokens are "
                "damaged, or meant for a larger vocabulary; prepare them again"
            )
        return out


@dataclass(frozen=True)
class Blend:
    """Streams and their weights, in the order of data.sources."""

    streams: tuple[TokenStream, ...]
    weights: tuple[Fraction, ...]

    def frequencies(self, vocab_size: int) -> npt.NDArray[np.float64]:
        """Probability of each token, each count plus one (Laplace), over the blend. A long stream is counted at
        places spread evenly over it."""
        total = sum(self.weights)
        mixed = np.zeros(vocab_size)
        for stream, weight in zip(self.streams, self.weights, strict=True):
            counts = _counts(stream, vocab_size) + 1.0
            mixed += float(weight / total) * counts / counts.sum()
        return mixed


def _counts(stream: TokenStream, vocab_size: int) -> npt.NDArray[np.float64]:
    length = len(stream)
    block = min(length, 1 << 16)
    blocks = min(COUNTED_TOKENS // max(block, 1), -(-length // max(block, 1)))
    counts = np.zeros(vocab_size)
    for i in range(blocks):
        # Whole when it is short: then the blocks lie side by side, and the last one is what is left.
        start = i * block if blocks * block >= length else i * (length - block) // max(blocks - 1, 1)
        counts += np.bincount(stream.read(start, min(block, length - start)), minlength=vocab_size)
    return counts


def exact_weight(weight: float) -> Fraction:
    """The number as it was written, so that 0.1, 0.2 and 0.7 add up to one."""
    return Fraction(repr(float(weight)))


def take_turns(weights: Sequence[Fraction], first: int, count: int) -> list[tuple[int, int]]:
    """(source, index within the source) of the sequences `first` to `first + count - 1` of a blend.

    Sequence n goes to the source whose next turn is due first, turn k of a source of weight w being due at
    (2k + 1) / 2w (Webster's method): a function of n alone, in which every source keeps to its share. Of the first n
    sequences a source of share p has n p to within (1 + p S) / 2, S being the number of sources, and exactly n p
    where that is whole for all of them.
    """
    total = sum(weights)
    # Turns taken for certain before `first`; the few that are missing are dealt one by one.
    taken = [max(0, int(first * weight / total) - len(weights)) for weight in weights]
    due = [
        (Fraction(2 * k + 1) / weight, source)
        for source, (k, weight) in enumerate(zip(taken, weights, strict=True))
    ]
    heapq.heapify(due)
    turns: list[tuple[int, int]] = []
    for n in range(sum(taken), first + count):
        _, source = due[0]
        if n >= first:
            turns.append((source, taken[source]))
        taken[source] += 1
        heapq.heapreplace(due, (Fraction(2 * taken[source] + 1) / weights[source], source))
    return turns
