"""Attention inside documents alone: a packed sequence holds several, each to be read as if it stood by itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from actors.training.model.decoder import Decoder, Layer


class _Documents:
    """Which document each position of the micro-batch now running belongs to.

    Without a pipeline, a micro-batch's backward, and what it recomputes, ends before the next one's forward begins.
    """

    mask: Tensor

    def __init__(self, end: int) -> None:
        self._end = end

    def read(self, part: nn.Module, arguments: tuple[Any, ...]) -> None:
        """A pre-forward hook: token ids (batch, positions) to a mask (batch, 1, queries, keys)."""
        tokens: Tensor = arguments[0]
        ends = (tokens == self._end).long()
        # An end token belongs to the document it ends.
        document = ends.cumsum(dim=1) - ends
        same = document.unsqueeze(2) == document.unsqueeze(1)
        causal = torch.ones(same.shape[1:], dtype=torch.bool, device=tokens.device).tril()
        self.mask = (same & causal).unsqueeze(1)


class DocumentAttention(nn.Module):
    """Causal attention to the query's own document. Rotary positions are relative: they need no restart."""

    def __init__(self, documents: _Documents) -> None:
        super().__init__()
        self._documents = documents

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=self._documents.mask, enable_gqa=True
        )


def mask_documents(part: Decoder, *, end: int) -> None:
    """Replaces what attends in every layer of a whole model; `end` is the token that ends a document."""
    documents = _Documents(end)
    for layer in part.layers.values():
        assert isinstance(layer, Layer)
        layer.attention.mix = DocumentAttention(documents)
    part.register_forward_pre_hook(documents.read)
