"""A permutation of the windows of a source for each epoch, without a list of them where they are many."""

from __future__ import annotations

import torch

from actors.training.seeds import derive, generator

LISTED_WINDOWS = 1 << 22
"""Up to so many windows the permutation is drawn as a list: 32 MiB."""
ROUNDS = 6


class Shuffle:
    """Window of each index: epoch `index // windows`'s permutation at `index % windows`."""

    def __init__(self, windows: int, seed: int, *names: str | int, listed: int = LISTED_WINDOWS) -> None:
        self._windows, self._seed, self._names = windows, seed, names
        self._is_listed = windows <= listed
        self._epoch = -1
        self._permutation = torch.empty(0, dtype=torch.long)
        self._keys: list[int] = []

    def window(self, index: int) -> int:
        epoch, position = divmod(index, self._windows)
        if epoch != self._epoch:
            self._begin(epoch)
        return int(self._permutation[position]) if self._is_listed else self._permuted(position)

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        if self._is_listed:
            chance = generator(self._seed, *self._names, "epoch", epoch)
            self._permutation = torch.randperm(self._windows, generator=chance)
        else:
            self._keys = [derive(self._seed, *self._names, "epoch", epoch, r) for r in range(ROUNDS)]

    def _permuted(self, position: int) -> int:
        """A Feistel network over the next power of four, walked until it falls inside (Black and Rogaway 2002,
        Ciphers with arbitrary finite domains): fewer than four walks on average."""
        half = max(1, ((self._windows - 1).bit_length() + 1) // 2)
        mask = (1 << half) - 1
        value = position
        while True:
            left, right = value >> half, value & mask
            for key in self._keys:
                left, right = right, left ^ (_mixed(right ^ key) & mask)
            value = left << half | right
            if value < self._windows:
                return value


def _mixed(value: int) -> int:
    """splitmix64's finaliser (Steele et al. 2014)."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    value = (value ^ value >> 30) * 0xBF58_476D_1CE4_E5B9 & 0xFFFF_FFFF_FFFF_FFFF
    value = (value ^ value >> 27) * 0x94D0_49BB_1331_11EB & 0xFFFF_FFFF_FFFF_FFFF
    return value ^ value >> 31
