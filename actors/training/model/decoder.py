"""A decoder-only transformer: RMSNorm, rotary positions, grouped-query attention, SwiGLU or a mixture of experts.

Layers sit in a ModuleDict keyed by their index in the whole model, and any of embedding, layers and head may be absent:
a pipeline stage is the same class with fewer members, and its parameter names are those of the whole model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from actors.training.model.feed_forward import FeedForward
from actors.training.model.moe import MoeFeedForward
from actors.training.model.rotary import rotary_table, rotate
from orchestrator.spec.sections import ModelSpec


class RMSNorm(nn.Module):
    """Zhang and Sennrich 2019."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        # ZeRO gathers a short weight; torch has no fused kernel for two formats.
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


class CausalAttention(nn.Module):
    """softmax(Q Kᵀ / sqrt(head size)) V, each position over itself and those before it."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """(batch, heads, positions, head size) each; key and value may have fewer heads."""
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


class Attention(nn.Module):
    """Grouped-query attention. Head counts are read off the projections, which may hold only some of the heads."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.head_size = size = spec.size_of_head
        bias = spec.projection_bias
        self.query = nn.Linear(spec.hidden, spec.heads * size, bias=bias)
        self.key = nn.Linear(spec.hidden, spec.kv_heads * size, bias=bias)
        self.value = nn.Linear(spec.hidden, spec.kv_heads * size, bias=bias)
        self.output = nn.Linear(spec.heads * size, spec.hidden, bias=False)
        self.query_norm = RMSNorm(size, spec.norm_eps) if spec.head_norm else None
        self.key_norm = RMSNorm(size, spec.norm_eps) if spec.head_norm else None
        self.mix: nn.Module = CausalAttention()
        """Between the projections: what a parallelism that splits positions replaces."""

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        query, key, value = (self._heads(projection(x)) for projection in (self.query, self.key, self.value))
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        mixed = self.mix(rotate(query, table), rotate(key, table), value)
        return cast(Tensor, self.output(mixed.transpose(1, 2).flatten(2)))

    def _heads(self, x: Tensor) -> Tensor:
        """(batch, positions, heads x head_size) -> (batch, heads, positions, head_size)."""
        return x.view(*x.shape[:-1], -1, self.head_size).transpose(1, 2)


class Layer(nn.Module):
    def __init__(self, spec: ModelSpec, index: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(spec.hidden, spec.norm_eps)
        self.attention = Attention(spec)
        self.feed_forward_norm = RMSNorm(spec.hidden, spec.norm_eps)
        self.feed_forward: nn.Module = (
            MoeFeedForward(spec) if spec.is_moe(index) else FeedForward(spec.hidden, spec.ffn_hidden)
        )

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), table)
        return x + cast(Tensor, self.feed_forward(self.feed_forward_norm(x)))


class Decoder(nn.Module):
    """The whole model, or the part of it that `layers`, `embeds` and `predicts` name."""

    rotary: Tensor

    def __init__(
        self,
        spec: ModelSpec,
        *,
        vocab_size: int,
        positions: int,
        layers: Sequence[int] | None = None,
        embeds: bool = True,
        predicts: bool = True,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.positions = positions
        chosen = range(spec.layers) if layers is None else layers
        self.embedding: nn.Module | None = nn.Embedding(vocab_size, spec.hidden) if embeds else None
        self.layers = nn.ModuleDict({str(index): Layer(spec, index) for index in chosen})
        self.norm = RMSNorm(spec.hidden, spec.norm_eps) if predicts else None
        self.head = nn.Linear(spec.hidden, vocab_size, bias=False) if predicts else None
        self.tie()
        table = rotary_table(spec, torch.arange(positions)).to(torch.get_default_dtype())
        self.register_buffer("rotary", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Token ids (batch, positions), or hidden states of the part before, to logits or hidden states."""
        hidden = x if self.embedding is None else self.embedding(x)
        for layer in self.layers.values():
            hidden = layer(hidden, self.rotary)
        if self.norm is None or self.head is None:
            return cast(Tensor, hidden)
        return cast(Tensor, self.head(self.norm(hidden)))

    def tie(self) -> None:
        """Makes the head's weight the embedding's, where the job says so. Again after `to_empty`, which parts them."""
        if self.head is not None and self.embedding is not None and self.spec.tied_embeddings:
            self.head.register_parameter("weight", self.embedding.get_parameter("weight"))

    def refill_buffers(self, device: torch.device, dtype: torch.dtype, positions: Tensor) -> None:
        """Computes what is not a parameter, for sequences of the `positions` given: a part built on the meta device has
        no values."""
        self.positions = len(positions)
        self.rotary = rotary_table(self.spec, positions).to(device, dtype)
        for module in self.modules():
            if isinstance(module, MoeFeedForward):
                module.refill_buffers(device)
