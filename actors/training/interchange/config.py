"""config.json to the model of a job file, and whether the two agree. Pure: no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from actors.training.interchange.failure import DirectoryUnreachableError, InterchangeError
from actors.training.interchange.families import FAMILIES, Family
from actors.training.interchange.rope import read_rope
from actors.training.interchange.settings import Settings
from orchestrator.spec.sections import ModelSpec

CONFIG_NAME = "config.json"
MAX_CONFIG_BYTES = 16 << 20
"""Of the file that describes a model; larger is something else."""


@dataclass(frozen=True)
class Architecture:
    """What a config.json describes."""

    family: Family
    model: ModelSpec
    vocab_size: int


def read_config(directory: Path) -> Architecture:
    """The architecture in `directory`. InterchangeError with all that cannot be taken."""
    path = directory / CONFIG_NAME
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_CONFIG_BYTES + 1)
    except FileNotFoundError:
        raise DirectoryUnreachableError("the model's file", path) from None
    except OSError as error:
        raise DirectoryUnreachableError("the model's file", path, error) from None
    try:
        if len(raw) > MAX_CONFIG_BYTES:
            raise ValueError(f"larger than {MAX_CONFIG_BYTES} bytes")
        document = json.loads(raw)
        if not isinstance(document, dict):
            raise ValueError(f"a JSON {type(document).__name__}, not an object")
    except (ValueError, RecursionError) as error:
        raise InterchangeError(f"{path} is no model configuration", [str(error)]) from None
    return interpret(document, origin=str(path))


def interpret(document: Mapping[str, Any], *, origin: str) -> Architecture:
    """The architecture that the settings of a config.json describe; `origin` names them in sentences."""
    kind = document.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise InterchangeError(
            f"{origin} describes a model that this version does not know",
            [f"model_type is {kind!r}; known are {', '.join(FAMILIES)}"],
        )
    settings = Settings(document, family)
    fields = _fields(settings)
    vocab_size = settings.integer("vocab_size")
    settings.refuse_the_rest()
    try:
        model = ModelSpec.model_validate(fields) if not settings.refusals else ModelSpec()
    except ValidationError as error:
        for flaw in error.errors():
            field = ".".join(str(part) for part in flaw["loc"])
            settings.refusals.append(f"model.{field} would be {flaw['input']!r}: {flaw['msg']}")
        model = ModelSpec()
    if settings.refusals:
        raise InterchangeError(
            f"{origin} describes a model that this version does not compute", settings.refusals
        )
    return Architecture(family, model, vocab_size)


def _fields(settings: Settings) -> dict[str, Any]:
    """The fields of ModelSpec."""
    family = settings.family
    hidden, heads = settings.integer("hidden_size"), settings.integer("num_attention_heads")
    shared = settings.value("num_key_value_heads")
    head_size = settings.value("head_dim")
    if head_size is not None:
        head_size = settings.integer("head_dim")
    fields = {
        "layers": settings.integer("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": settings.integer("num_key_value_heads") if shared is not None else heads,
        "head_size": None if head_size is None or head_size * heads == hidden else head_size,
        "ffn_hidden": settings.integer("intermediate_size"),
        "norm_eps": settings.number("rms_norm_eps"),
        "tied_embeddings": settings.boolean("tie_word_embeddings"),
        "projection_bias": family.model_type == "qwen2",
        "head_norm": family.head_norm,
        **read_rope(settings),
    }
    if family.model_type == "qwen2_moe":
        fields["projection_bias"] = settings.boolean("qkv_bias") if settings.has("qkv_bias") else True
    if family.experts is not None:
        fields["moe"] = _experts(settings)
    if heads % fields["kv_heads"]:
        settings.refuse("num_key_value_heads", f"{fields['kv_heads']}; must divide {heads} heads")
    if head_size is None and hidden % heads:
        settings.refuse("hidden_size", f"{hidden}; must be a multiple of {heads} heads")
    return fields


def _experts(settings: Settings) -> dict[str, Any]:
    if settings.family.model_type == "mixtral":
        return {
            "experts": settings.integer("num_local_experts"),
            "top_k": settings.integer("num_experts_per_tok"),
        }
    # The library writes num_local_experts for qwen3_moe since its version 5.
    count = "num_local_experts" if settings.has("num_local_experts") else "num_experts"
    inner = settings.integer("moe_intermediate_size")
    fields: dict[str, Any] = {
        "experts": settings.integer(count),
        "top_k": settings.integer("num_experts_per_tok"),
        "ffn_hidden": inner,
        "normalize_weights": settings.boolean("norm_topk_prob") if settings.has("norm_topk_prob") else False,
        "dense_layers": _dense_layers(settings),
    }
    if settings.family.model_type == "qwen2_moe":
        shared = settings.integer("shared_expert_intermediate_size")
        if shared % inner:
            why = f"{shared}; must be a multiple of moe_intermediate_size ({inner})"
            settings.refuse("shared_expert_intermediate_size", why)
        fields |= {"shared_experts": shared // inner, "shared_gate": True}
    return fields


def _dense_layers(settings: Settings) -> int:
    """Layers without experts: the first ones, or it is refused."""
    dense = settings.value("mlp_only_layers") or []
    if not isinstance(dense, list) or any(layer not in dense for layer in range(len(dense))):
        settings.refuse("mlp_only_layers", f"{dense!r}; layers without experts must be the first ones")
        return 0
    return len(dense)


def differences(model: ModelSpec, vocab_size: int, found: Architecture) -> list[str]:
    """Where a job's model is another than the one found; a sentence each. Choices of training do not count."""
    ours, theirs = shape_of(model, vocab_size), shape_of(found.model, found.vocab_size)
    return [
        f"{field} is {ours.get(field)!r}, the checkpoint has {theirs.get(field)!r}"
        for field in dict.fromkeys((*ours, *theirs))
        if ours.get(field) != theirs.get(field)
    ]


def shape_of(model: ModelSpec, vocab_size: int) -> dict[str, Any]:
    """Everything that decides what the weights mean, by its field in a job file; defaults worked out."""
    fields = ("layers", "hidden", "heads", "kv_heads", "rope_theta", "norm_eps", "tied_embeddings")
    shape = {f"model.{name}": getattr(model, name) for name in (*fields, "projection_bias", "head_norm")}
    shape["model.head_size"] = model.size_of_head
    scaling = model.rope_scaling
    shape["model.rope_scaling.kind"] = scaling and scaling.kind
    if scaling is not None:
        used = ["factor"]
        if scaling.kind == "llama3":
            used += ["low_frequency_factor", "high_frequency_factor", "original_positions"]
        shape |= {f"model.rope_scaling.{name}": getattr(scaling, name) for name in used}
    moe = model.moe
    if moe is None or moe.dense_layers:
        shape["model.ffn_hidden"] = model.ffn_hidden
    if moe is not None:
        names = ("experts", "top_k", "shared_experts", "shared_gate", "dense_layers", "normalize_weights")
        shape |= {f"model.moe.{name}": getattr(moe, name) for name in names}
        shape["model.moe.ffn_hidden"] = moe.ffn_hidden or model.ffn_hidden
    shape["data.vocab_size"] = vocab_size
    return shape
