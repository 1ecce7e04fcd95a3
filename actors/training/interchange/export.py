"""Writing a model as a Hugging Face directory: config.json and safetensors, one file or an index and shards.

Tensors are asked for a shard at a time, so a model larger than memory can be written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from actors.training.interchange.choice import choose_family, written_config
from actors.training.interchange.config import CONFIG_NAME
from actors.training.interchange.directory import INDEX_NAME, SINGLE_NAME
from actors.training.interchange.families import Family
from actors.training.interchange.names import locate
from actors.training.interchange.weights import parameter_shapes
from orchestrator.spec.sections import ModelSpec

SHARD_BYTES = 5_000_000_000
"""Largest file, as the library's own writer has it."""

Source = Callable[[Sequence[str]], Mapping[str, Tensor]]
"""Names of parameters of the whole model -> their values, whole, on the CPU."""


def export_model(
    directory: Path,
    model: ModelSpec,
    *,
    vocab_size: int,
    positions: int,
    dtype: torch.dtype,
    source: Source,
    shard_bytes: int = SHARD_BYTES,
) -> list[Path]:
    """Writes `model` into `directory`, which exists; returns the files written, config.json last.

    InterchangeError when no family of the library computes it. `positions`: longest sequence it was trained on.
    """
    family = choose_family(model)
    shapes = parameter_shapes(model, vocab_size)
    groups = list(_groups(shapes, shard_bytes=shard_bytes, item_bytes=dtype.itemsize))
    experts = model.moe.experts if model.moe else 0
    written: list[Path] = []
    file_of: dict[str, str] = {}
    for number, group in enumerate(groups, start=1):
        name = SINGLE_NAME if len(groups) == 1 else f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        tensors = dict(_tensors(source(group), family, experts, dtype))
        save_file(tensors, directory / name, metadata={"format": "pt"})
        file_of |= dict.fromkeys(tensors, name)
        written.append(directory / name)
    if len(groups) > 1:
        total = sum(prod(shape) for shape in shapes.values()) * dtype.itemsize
        written.append(
            _write_json(directory / INDEX_NAME, {"metadata": {"total_size": total}, "weight_map": file_of})
        )
    config = written_config(model, family, vocab_size=vocab_size, positions=positions)
    config["torch_dtype"] = str(dtype).removeprefix("torch.")
    written.append(_write_json(directory / CONFIG_NAME, config))
    return written


def _groups(
    shapes: Mapping[str, tuple[int, ...]], *, shard_bytes: int, item_bytes: int
) -> Iterator[list[str]]:
    """Parameters in the model's order, as many to a file as fit; one that is larger has a file to itself."""
    group: list[str] = []
    size = 0
    for name, shape in shapes.items():
        bytes_ = prod(shape) * item_bytes
        if group and size + bytes_ > shard_bytes:
            yield group
            group, size = [], 0
        group.append(name)
        size += bytes_
    yield group


def _tensors(
    values: Mapping[str, Tensor], family: Family, experts: int, dtype: torch.dtype
) -> Iterator[tuple[str, Tensor]]:
    for name, value in values.items():
        location = locate(name, family, experts=experts)
        rows = value.unbind(0) if location.stacked else (value,)
        for tensor, row in zip(location.tensors, rows, strict=True):
            # A copy: safetensors writes no two tensors that share memory.
            yield tensor, row.detach().to(dtype, copy=True).contiguous()


def _write_json(path: Path, document: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
    return path
