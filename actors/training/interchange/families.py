"""The architectures that are read and written, and what sets them apart. Pure: no torch.

Names and defaults are those of `configuration_*.py` and `modeling_*.py` in Hugging Face transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ExpertNames:
    """Where a layer's experts lie in a checkpoint."""

    block: str
    gate: str
    up: str
    down: str


QWEN_EXPERTS = ExpertNames("mlp", "gate_proj", "up_proj", "down_proj")
MIXTRAL_EXPERTS = ExpertNames("block_sparse_moe", "w1", "w3", "w2")


@dataclass(frozen=True)
class Family:
    model_type: str
    class_name: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of settings that a config.json may leave out, where they are not `COMMON_DEFAULTS`."""
    experts: ExpertNames | None = None
    head_norm: bool = False
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Settings with the values that this program computes as the family does; the first is written."""
    ignored: frozenset[str] = frozenset()
    """Settings of the family that change nothing while those in `fixed` have their values."""

    def default(self, setting: str) -> Any:
        return self.defaults.get(setting, COMMON_DEFAULTS.get(setting))


COMMON_DEFAULTS: Mapping[str, Any] = {
    "head_dim": None,  # hidden_size / num_attention_heads
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
}

_WINDOWED: Mapping[str, tuple[Any, ...]] = {"use_sliding_window": (False,)}
_WINDOW_SETTINGS = frozenset({"sliding_window", "max_window_layers"})

FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        Family(
            "llama",
            "LlamaForCausalLM",
            defaults={"num_key_value_heads": None},  # num_attention_heads
            fixed={"attention_bias": (False,), "mlp_bias": (False,)},
            ignored=frozenset({"pretraining_tp"}),
        ),
        Family("qwen2", "Qwen2ForCausalLM", fixed=_WINDOWED, ignored=_WINDOW_SETTINGS),
        Family(
            "qwen3",
            "Qwen3ForCausalLM",
            defaults={"head_dim": 128},
            head_norm=True,
            fixed={"attention_bias": (False,), **_WINDOWED},
            ignored=_WINDOW_SETTINGS,
        ),
        Family(
            "mixtral",
            "MixtralForCausalLM",
            defaults={"rms_norm_eps": 1e-5, "rope_theta": 1e6},
            experts=MIXTRAL_EXPERTS,
            fixed={"sliding_window": (None,)},
            ignored=frozenset({"router_jitter_noise"}),
        ),
        Family(
            "qwen2_moe",
            "Qwen2MoeForCausalLM",
            experts=QWEN_EXPERTS,
            fixed={"decoder_sparse_step": (1,), **_WINDOWED},
            ignored=_WINDOW_SETTINGS,
        ),
        Family(
            "qwen3_moe",
            "Qwen3MoeForCausalLM",
            experts=QWEN_EXPERTS,
            head_norm=True,
            fixed={"decoder_sparse_step": (1,), "attention_bias": (False,), **_WINDOWED},
            ignored=_WINDOW_SETTINGS,
        ),
    )
}

COMMON_FIXED: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_dropout": (0.0, None),
    "partial_rotary_factor": (1.0, None),
    "quantization_config": (None,),
}

COMMON_IGNORED = frozenset(
    {
        # About the file, the tokenizer or generation.
        "_name_or_path", "architectures", "auto_map", "bos_token_id", "chunk_size_feed_forward", "dtype",
        "eos_token_id", "id2label", "label2id", "max_position_embeddings", "model_type", "pad_token_id",
        "return_dict", "torch_dtype", "transformers_version", "unk_token_id", "use_cache",
        # About training, where the job file decides.
        "initializer_range", "output_attentions", "output_hidden_states", "output_router_logits",
        "router_aux_loss_coef",
    }
)  # fmt: skip
"""Settings that do not change what the model computes."""
