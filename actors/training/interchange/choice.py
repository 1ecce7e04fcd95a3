"""Which family a job's model is written as, and its config.json. Pure: no torch."""

from __future__ import annotations

from typing import Any

from actors.training.interchange.failure import InterchangeError
from actors.training.interchange.families import COMMON_FIXED, FAMILIES, Family
from actors.training.interchange.rope import written_rope
from orchestrator.spec.sections import ModelSpec


def choose_family(model: ModelSpec) -> Family:
    """The family that computes what `model` computes. InterchangeError with every reason why none does.

    A capacity factor is no reason: an expert that is full drops tokens in training only.
    """
    name, reasons = _dense(model) if model.moe is None else _mixture(model)
    if reasons:
        raise InterchangeError("no architecture of Hugging Face transformers is this model", reasons)
    return FAMILIES[name]


def _dense(model: ModelSpec) -> tuple[str, list[str]]:
    if model.head_norm and model.projection_bias:
        return "qwen3", [
            "model.projection_bias is true beside model.head_norm; Qwen 3 has head norms without biases, "
            "Qwen 2 biases without head norms"
        ]
    if model.head_norm:
        return "qwen3", []
    if model.projection_bias:
        return "qwen2", []
    if model.hidden % model.heads:
        return "llama", [
            f"model.hidden ({model.hidden}) must be a multiple of model.heads ({model.heads}) in Llama, "
            "also with model.head_size; Qwen 3 (model.head_norm) and Qwen 2 (model.projection_bias) need that not"
        ]
    return "llama", []


def _mixture(model: ModelSpec) -> tuple[str, list[str]]:
    moe = model.moe
    assert moe is not None
    reasons = []
    if moe.balance == "bias":
        reasons.append("model.moe.balance is bias, which chooses experts by a bias; use loss or none")
    if model.head_norm:
        if model.projection_bias:
            reasons.append("model.projection_bias must be false with model.head_norm (Qwen 3 MoE)")
        if moe.shared_experts:
            reasons.append("model.moe.shared_experts must be 0 with model.head_norm (Qwen 3 MoE)")
        return "qwen3_moe", reasons
    if moe.shared_experts and moe.shared_gate:
        return "qwen2_moe", reasons
    if moe.shared_experts:
        reasons.append("model.moe.shared_experts needs model.moe.shared_gate (Qwen 2 MoE)")
    if model.projection_bias:
        reasons.append("model.projection_bias needs shared experts with model.moe.shared_gate (Qwen 2 MoE)")
    if moe.dense_layers:
        reasons.append(
            f"model.moe.dense_layers is {moe.dense_layers}; Mixtral has experts in every layer (Qwen 3 MoE, "
            "with model.head_norm, need not)"
        )
    if not moe.normalize_weights:
        reasons.append("model.moe.normalize_weights must be true in Mixtral")
    return "mixtral", reasons


def written_config(model: ModelSpec, family: Family, *, vocab_size: int, positions: int) -> dict[str, Any]:
    """The settings of a config.json without the number format."""
    config: dict[str, Any] = {
        "architectures": [family.class_name],
        "model_type": family.model_type,
        "vocab_size": vocab_size,
        "hidden_size": model.hidden,
        "intermediate_size": model.ffn_hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.size_of_head,
        "max_position_embeddings": positions,
        "rms_norm_eps": model.norm_eps,
        "tie_word_embeddings": model.tied_embeddings,
        "hidden_act": COMMON_FIXED["hidden_act"][0],
        "attention_dropout": 0.0,
        # The library's defaults name tokens that this tokenizer may not have.
        "bos_token_id": None,
        "eos_token_id": None,
        **{name: allowed[0] for name, allowed in family.fixed.items()},
        **written_rope(model),
    }
    return config | _written_experts(model, family)


def _written_experts(model: ModelSpec, family: Family) -> dict[str, Any]:
    moe = model.moe
    if moe is None:
        return {}
    inner = moe.ffn_hidden or model.ffn_hidden
    if family.model_type == "mixtral":
        return {
            "num_local_experts": moe.experts,
            "num_experts_per_tok": moe.top_k,
            "intermediate_size": inner,
        }
    config: dict[str, Any] = {
        "num_experts": moe.experts,
        "num_experts_per_tok": moe.top_k,
        "moe_intermediate_size": inner,
        "norm_topk_prob": moe.normalize_weights,
        "mlp_only_layers": list(range(moe.dense_layers)),
    }
    if family.model_type == "qwen2_moe":
        config |= {
            "shared_expert_intermediate_size": moe.shared_experts * inner,
            "qkv_bias": model.projection_bias,
        }
    return config
