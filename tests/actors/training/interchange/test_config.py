"""config.json: what is read, what is refused and how much of it at once, and what is written for which model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actors.training.interchange.choice import choose_family, written_config
from actors.training.interchange.config import interpret, read_config
from actors.training.interchange.failure import InterchangeError
from orchestrator.spec.sections import ModelSpec

# As published for Llama 3.1 8B, in the spelling of the library's version 4.
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}


def refusals(**changes: Any) -> list[str]:
    with pytest.raises(InterchangeError) as refused:
        interpret(LLAMA | changes, origin="config.json")
    return list(refused.value.reasons)


def test_a_published_config() -> None:
    found = interpret(LLAMA, origin="config.json")
    assert found.vocab_size == 128256
    assert found.model == ModelSpec(
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        ffn_hidden=14336,
        rope_theta=500_000.0,
        rope_scaling={  # type: ignore[arg-type]
            "kind": "llama3",
            "factor": 8.0,
            "low_frequency_factor": 1.0,
            "high_frequency_factor": 4.0,
            "original_positions": 8192,
        },
        norm_eps=1e-5,
    )


def test_all_that_is_not_computed_is_refused_at_once() -> None:
    found = refusals(
        hidden_act="gelu",
        attention_bias=True,
        mlp_bias=True,
        attention_dropout=0.1,
        rope_scaling={"rope_type": "yarn", "factor": 4.0},
        quantization_config={"quant_method": "gptq"},
        layer_types=["full_attention", "sliding_attention"],
        logit_scale=0.5,
        num_key_value_heads=5,
        rms_norm_eps="small",
        hidden_size=None,
    )
    for name in (
        "hidden_act is 'gelu'",
        "attention_bias is True",
        "mlp_bias is True",
        "attention_dropout is 0.1",
        "rope_scaling is of the type 'yarn'",
        "quantization_config is {'quant_method': 'gptq'}",
        "layer_types is ['full_attention', 'sliding_attention']",
        "logit_scale is 0.5; this setting is not known here",
        "num_key_value_heads is 5",
        "rms_norm_eps is 'small'",
        "hidden_size is None",
    ):
        assert [reason for reason in found if reason.startswith(name)], (name, found)
    assert len(found) == 11


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'; known are llama"),
        ({"model_type": None}, "model_type is None"),
        ({"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4096},
         "sliding_window is 4096; only None is computed here"),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64},
         "use_sliding_window is True; only False is computed here"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling is of the type 'dynamic'"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling is of the type linear and lacks factor"),
        ({"rope_parameters": {"rope_type": "default", "mrope_section": [1]}},
         "rope_parameters is of the type default with mrope_section"),
        ({"layer_types": 3}, "layer_types is 3"),
        ({"rope_scaling": {"rope_type": ["linear"]}}, "rope_scaling is of the type ['linear']"),
        ({"hidden_size": 10**9}, "model.hidden would be 1000000000"),
        ({"rope_theta": 10**400}, "rope_theta is 1000"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan; must be a finite number above 0"),
    ],
)  # fmt: skip
def test_one_refusal(changes: dict[str, Any], reason: str) -> None:
    assert [one for one in refusals(**changes) if one.startswith(reason)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mlp_only_layers": [1]}, "mlp_only_layers is [1]; layers without experts must be the first ones"),
        (
            {"mlp_only_layers": [[0]]},
            "mlp_only_layers is [[0]]; layers without experts must be the first ones",
        ),
        (
            {"mlp_only_layers": ["a", 0]},
            "mlp_only_layers is ['a', 0]; layers without experts must be the first ones",
        ),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step is 2; only 1 is computed here"),
        (
            {"shared_expert_intermediate_size": 1000},
            "shared_expert_intermediate_size is 1000; must be a multiple of moe_intermediate_size (768)",
        ),
    ],
)
def test_experts_that_lie_otherwise(changes: dict[str, Any], reason: str) -> None:
    experts = {
        "model_type": "qwen2_moe",
        "pretraining_tp": None,  # of Llama alone
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 768,
        "shared_expert_intermediate_size": 1536,
    }
    model = interpret(LLAMA | experts, origin="config.json").model
    assert model.moe is not None
    assert (model.moe.shared_experts, model.moe.shared_gate, model.projection_bias) == (2, True, True)
    assert refusals(**(experts | changes)) == [reason]


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_a_file_that_is_no_configuration(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InterchangeError, match="is no model configuration"):
        read_config(tmp_path)


MOE = {"experts": 4, "top_k": 2}


@pytest.mark.parametrize(
    ("fields", "family"),
    [
        ({}, "llama"),
        ({"head_size": 48, "tied_embeddings": True}, "llama"),
        ({"projection_bias": True, "hidden": 100, "head_size": 32}, "qwen2"),
        ({"head_norm": True, "head_size": 48}, "qwen3"),
        ({"moe": MOE | {"capacity_factor": 1.5}}, "mixtral"),
        ({"moe": MOE | {"ffn_hidden": 64}}, "mixtral"),
        ({"moe": MOE | {"shared_experts": 2, "shared_gate": True, "dense_layers": 1}}, "qwen2_moe"),
        ({"head_norm": True, "moe": MOE | {"normalize_weights": False, "dense_layers": 2}}, "qwen3_moe"),
    ],
)
def test_what_is_written_is_read_as_the_same_model(fields: dict[str, Any], family: str) -> None:
    model = ModelSpec.model_validate(fields | {"rope_scaling": {"kind": "linear", "factor": 2.0}})
    chosen = choose_family(model)
    assert chosen.model_type == family
    written = json.loads(json.dumps(written_config(model, chosen, vocab_size=300, positions=64)))
    found = interpret(written, origin="written")
    assert found.vocab_size == 300
    again = choose_family(found.model)
    assert written_config(found.model, again, vocab_size=300, positions=64) == written


@pytest.mark.parametrize(
    ("fields", "reasons"),
    [
        ({"head_norm": True, "projection_bias": True}, ["model.projection_bias is true beside"]),
        ({"hidden": 100, "heads": 3, "kv_heads": 3, "head_size": 32}, ["model.hidden (100) must be a multiple"]),
        (
            {"projection_bias": True, "moe": MOE | {"shared_experts": 1, "dense_layers": 1, "balance": "bias",
                                                    "normalize_weights": False}},
            ["model.moe.balance is bias", "model.moe.shared_experts needs", "model.projection_bias needs",
             "model.moe.dense_layers is 1", "model.moe.normalize_weights must be true"],
        ),
        (
            {"head_norm": True, "projection_bias": True, "moe": MOE | {"shared_experts": 1}},
            ["model.projection_bias must be false", "model.moe.shared_experts must be 0"],
        ),
    ],
)  # fmt: skip
def test_a_model_that_no_family_computes(fields: dict[str, Any], reasons: list[str]) -> None:
    with pytest.raises(InterchangeError) as refused:
        choose_family(ModelSpec.model_validate(fields))
    assert len(refused.value.reasons) == len(reasons)
    assert all(any(one.startswith(r) for one in refused.value.reasons) for r in reasons)
