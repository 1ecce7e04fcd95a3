"""A small transformer of one's own, as a job trains it with `model.import: small_gpt:build`. It needs torch alone."""

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention


def build(options: dict) -> nn.Module:
    """Called once on every rank with `model.options`; its random numbers follow from the job's seed."""
    return SmallGPT(**options)


class SmallGPT(nn.Module):
    def __init__(self, *, vocabulary: int, positions: int, width: int, depth: int, head: int) -> None:
        super().__init__()
        self.embed = Embed(vocabulary, positions, width)
        self.layers = nn.ModuleList(Layer(width, head) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Ids (sequences, positions) to logits (sequences, positions, vocabulary): embed, layers and head in order."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Embed(nn.Module):
    def __init__(self, vocabulary: int, positions: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(positions, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))


class Layer(nn.Module):
    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.head = head
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        # Three maps and not one: a tensor rank takes a run of outputs, which must be whole heads of each.
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.attention_norm(x)
        # -1: the heads this rank has.
        query, key, value = (
            linear(normed).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.mlp_norm(x))))
