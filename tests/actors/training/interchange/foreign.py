"""Small random checkpoints made by Hugging Face transformers, and ours read from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before the library is imported: nothing here is downloaded

import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MixtralConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from actors.training.interchange.config import Architecture, read_config
from actors.training.interchange.weights import load_weights
from actors.training.model.decoder import Decoder
from actors.training.parallel.layout import ParameterLayout

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

VOCABULARY = 256
POSITIONS = 48
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}

CONFIGS: Mapping[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**SIZES),
    "llama3-rope-tied": lambda: LlamaConfig(rope_parameters=LLAMA3, tie_word_embeddings=True, **SIZES),
    "linear-rope-wide-heads": lambda: LlamaConfig(rope_parameters=LINEAR, head_dim=16, **SIZES),
    "qwen2": lambda: Qwen2Config(**SIZES),
    "qwen3": lambda: Qwen3Config(head_dim=12, **SIZES),
    "mixtral": lambda: MixtralConfig(num_local_experts=4, **SIZES),
    "qwen2-moe": lambda: Qwen2MoeConfig(shared_expert_intermediate_size=32, **EXPERTS, **SIZES),
    "qwen3-moe": lambda: Qwen3MoeConfig(mlp_only_layers=[0], norm_topk_prob=True, **EXPERTS, **SIZES),
}


@torch.no_grad()
def foreign_model(kind: str, dtype: torch.dtype = torch.float32) -> Any:
    """Weights far from their initial values: norms that are not one, biases that are not zero."""
    # The eager experts: grouped products have no float64.
    model = AutoModelForCausalLM.from_config(CONFIGS[kind](), experts_implementation="eager").to(dtype).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        noise = torch.empty_like(parameter).normal_(generator=generator)
        parameter.copy_(1 + 0.1 * noise if parameter.dim() == 1 else 0.2 * noise)
    return model


def load_foreign(directory: Path) -> Any:
    """What the library makes of `directory`; fails where it misses a tensor or finds one too many."""
    model, told = AutoModelForCausalLM.from_pretrained(
        directory, dtype="auto", output_loading_info=True, experts_implementation="eager"
    )
    assert not any(told.values()), told
    return model.eval()


def own_model(directory: Path, dtype: torch.dtype) -> tuple[Decoder, Architecture]:
    found = read_config(directory)
    decoder = Decoder(found.model, vocab_size=found.vocab_size, positions=POSITIONS).to(dtype)
    decoder.refill_buffers(torch.device("cpu"), dtype, torch.arange(POSITIONS))
    layouts = {name: ParameterLayout(tuple(p.shape)) for name, p in decoder.named_parameters()}
    load_weights(decoder, layouts, directory, vocab_size=found.vocab_size)
    return decoder.eval(), found


def tokens() -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, VOCABULARY, (2, POSITIONS), generator=generator)
