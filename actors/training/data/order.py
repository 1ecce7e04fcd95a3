"""Which sequences a step reads: a function of (seed, global sequence index), the same under every plan."""

from __future__ import annotations

import torch
from torch import Tensor

from actors.training.data.blend import Blend, take_turns
from actors.training.data.shuffle import Shuffle

IGNORED = -100
"""Target of positions that do not count (torch's default `ignore_index`)."""


class SequenceOrder:
    """Windows of the training part, shuffled anew in every epoch.

    The text is cut into windows of `sequence_length` tokens that overlap by the one token to predict. Global sequence
    `i` of the job is window `i mod windows` of epoch `i // windows`'s permutation; step `k` reads sequences
    `k * global_batch` to `(k + 1) * global_batch - 1`. So the data cursor of a checkpoint is its step.

    In a blend each source has windows and epochs of its own: no window is read again before all of its source's were.
    """

    def __init__(self, tokens: Tensor | Blend, *, sequence_length: int, global_batch: int, seed: int) -> None:
        self._tokens = tokens
        self._length = sequence_length
        self._global_batch = global_batch
        sizes = [len(stream) for stream in tokens.streams] if isinstance(tokens, Blend) else [len(tokens)]
        for size in sizes:
            if (size - 1) // sequence_length < 1:
                raise ValueError(f"{size} tokens hold no sequence of {sequence_length} and the next token")
        counts = [(size - 1) // sequence_length for size in sizes]
        self.windows = sum(counts)
        # The first source is shuffled as the only one is: a source added later does not change it.
        self._shuffles = [
            Shuffle(count, seed, *(("source", index) if index else ())) for index, count in enumerate(counts)
        ]

    def cursor(self, step: int) -> int:
        """Global index of the first sequence that step `step` (0-based) reads."""
        return step * self._global_batch

    def batch(self, step: int, *, replica: int, replicas: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one replica, both (global_batch / replicas, sequence_length), int64.

        Replicas take consecutive blocks of the step's sequences.
        """
        share = self._global_batch // replicas
        first = self.cursor(step) + replica * share
        if not isinstance(self._tokens, Blend):
            windows = [self._shuffles[0].window(index) for index in range(first, first + share)]
            return cut_windows(self._tokens, windows, self._length)
        turns = take_turns(self._tokens.weights, first, share)
        return _cut_blend(
            self._tokens, [(source, self._shuffles[source].window(n)) for source, n in turns], self._length
        )


def cut_windows(tokens: Tensor, windows: list[int], length: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the windows named, (windows, length) each, int64."""
    rows = torch.stack([tokens[w * length : (w + 1) * length + 1] for w in windows]).long()
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def _cut_blend(blend: Blend, windows: list[tuple[int, int]], length: int) -> tuple[Tensor, Tensor]:
    """The same for windows of (source, window)."""
    rows = torch.stack(
        [torch.from_numpy(blend.streams[source].read(w * length, length + 1)) for source, w in windows]
    )
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def held_back_sequences(
    tokens: Tensor | Blend, *, sequence_length: int, at_most: int
) -> tuple[Tensor, Tensor]:
    """`at_most` windows spread evenly over the held-back part, or all there are: neighbours are too much alike.

    Of a blend, each source's share of them, as far as it has so many.
    """
    if not isinstance(tokens, Blend):
        return cut_windows(tokens, _spread((len(tokens) - 1) // sequence_length, at_most), sequence_length)
    counts = [max(0, len(stream) - 1) // sequence_length for stream in tokens.streams]
    shares = [0] * len(counts)
    with_any = [index for index, count in enumerate(counts) if count]
    for turn, _ in take_turns([tokens.weights[index] for index in with_any], 0, at_most):
        shares[with_any[turn]] += 1
    windows = [
        (source, window) for source, count in enumerate(counts) for window in _spread(count, shares[source])
    ]
    return _cut_blend(tokens, windows, sequence_length)


def _spread(windows: int, at_most: int) -> list[int]:
    count = min(at_most, windows)
    return [i * windows // count for i in range(count)]


def pad_sequences(inputs: Tensor, targets: Tensor, *, multiple: int) -> tuple[Tensor, Tensor]:
    """Adds sequences that do not count until their number is a multiple of `multiple`."""
    missing = -len(inputs) % multiple
    return (
        torch.cat((inputs, inputs.new_zeros((missing, inputs.shape[1])))),
        torch.cat((targets, targets.new_full((missing, targets.shape[1]), IGNORED))),
    )
