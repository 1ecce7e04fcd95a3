"""The model of the chaos jobs: small, slow enough to be struck, and a witness of every forward pass of its training.

A line of the witness file: seconds since 1970, process, rank, block, port of the rendezvous (another one in each
attempt). It is written by the rank itself, so it tells of
training that nobody heard of, as that of a rank whose agent or supervisor is gone.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention

WITNESSES = (0, 2)
"""Blocks that write: one on each stage of a pipeline of two."""


class Block(nn.Module):
    """Each position sees the mean of those before it. No biases: the gradient of some is zero but for rounding, which
    the optimizer would blow up to whole steps, and no two plans would agree."""

    def __init__(self, number: int, width: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.number, self.path, self.pause_s = number, options.get("witness"), options.get("pause_s", 0.0)
        self.norm = nn.RMSNorm(width)
        self.mix = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.path and self.number in WITNESSES and x.device.type != "meta":
            self.tell()
        normed = self.norm(x)
        counts = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype).unsqueeze(1)
        mean = normed.cumsum(1) / counts
        change: Tensor = self.down(F.gelu(self.up(normed + self.mix(mean))))
        return x + change

    def tell(self) -> None:
        time.sleep(self.pause_s)
        line = f"{time.time():.6f} {os.getpid()} {os.environ['RANK']} {self.number} {os.environ['MASTER_PORT']}\n"
        descriptor = os.open(str(self.path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


class Model(nn.Module):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        width = 16
        self.embed = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Block(number, width, options) for number in range(4))
        self.head = nn.Linear(width, 256, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits


def build(options: dict[str, Any]) -> nn.Module:
    return Model(options)
