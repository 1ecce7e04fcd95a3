"""A user's own models: none of them uses anything of Atoll's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention


class Embed(nn.Module):
    def __init__(self, vocabulary: int, positions: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(0.1 * torch.randn(positions, width))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.tokens(tokens) + self.places[: tokens.shape[1]]


class Block(nn.Module):
    """Causal attention whose heads forget with distance, a gain a head, then a feed-forward; biases everywhere."""

    def __init__(self, width: int, head: int, dropout: float) -> None:
        super().__init__()
        self.head = head
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.gain = nn.Parameter(torch.rand(head))
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("slope", torch.tensor(0.05), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[1], device=x.device)
        distance = positions.unsqueeze(1) - positions
        bias = torch.where(distance >= 0, -self.slope * distance, float("-inf")).to(x.dtype)
        normed = self.norm1(x)
        query, key, value = (
            projection(normed).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query * self.gain, key, value, attn_mask=bias)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class Model(nn.Module):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        width, vocabulary = options.get("width", 16), options.get("vocabulary", 256)
        self.embed = Embed(vocabulary, options.get("positions", 64), width)
        self.trunk = nn.Module()
        self.trunk.layers = nn.ModuleList(
            Block(width, options.get("head", 4), options.get("dropout", 0.0))
            for _ in range(options.get("depth", 4))
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if options.get("tied"):
            self.head.weight = self.embed.tokens.weight
        if options.get("transposed"):
            up = self.trunk.layers[0].up
            up.weight = nn.Parameter(up.weight.detach().t().contiguous().t())
        for name in options.get("frozen", ()):
            self.get_submodule(name).requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.trunk.layers:
            x = layer(x)
        return self.head(self.norm(x))


def build(options: dict[str, Any]) -> nn.Module:
    return Model(options)
