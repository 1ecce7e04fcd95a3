"""Where each parameter of a Decoder lies in a checkpoint, and the tokenizer beside them. Pure: no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from actors.training.interchange.families import Family

TOKENIZER_NAME = "tokenizer.json"
"""A tokenizer as the `tokenizers` library saves it."""

_TOP = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}

_IN_LAYER = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
    "feed_forward.shared.gate": "mlp.shared_expert.gate_proj",
    "feed_forward.shared.up": "mlp.shared_expert.up_proj",
    "feed_forward.shared.down": "mlp.shared_expert.down_proj",
    "feed_forward.shared_gate": "mlp.shared_expert_gate",
}

_LAYER = re.compile(r"layers\.(\d+)\.(.+)")

UNUSED = re.compile(r"lm_head\.weight|model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""Tensors that some writers add and that follow from the others: the head of a tied model, old rotary buffers."""


@dataclass(frozen=True)
class Location:
    """Tensors of a checkpoint that make up one parameter."""

    tensors: tuple[str, ...]
    stacked: bool = False
    """One tensor for each index of the parameter's first dimension; else one tensor is the parameter."""


def locate(parameter: str, family: Family, *, experts: int) -> Location:
    """Where `parameter` (its name in the whole model) lies; `experts` of a layer, 0 without."""
    if parameter in _TOP:
        return Location((_TOP[parameter],))
    match = _LAYER.fullmatch(parameter)
    assert match is not None, f"{parameter} is no parameter of a Decoder"
    layer, inner = f"model.layers.{match[1]}", match[2]
    if inner.startswith(("feed_forward.experts.", "feed_forward.router.")):
        names = family.experts
        assert names is not None, f"{family.model_type} has no experts"
        if inner == "feed_forward.router.weight":
            return Location((f"{layer}.{names.block}.gate.weight",))
        projection = getattr(names, inner.rpartition(".")[2])
        tensors = (f"{layer}.{names.block}.experts.{index}.{projection}.weight" for index in range(experts))
        return Location(tuple(tensors), stacked=True)
    module, _, kind = inner.rpartition(".")
    return Location((f"{layer}.{_IN_LAYER[module]}.{kind}",))
