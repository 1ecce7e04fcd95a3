"""`model.weights`: the parameters of a rank from a Hugging Face directory, each rank reading its slices alone."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from actors.training.interchange.config import Architecture, differences, read_config
from actors.training.interchange.directory import FLOATS, TensorDirectory
from actors.training.interchange.failure import InterchangeError
from actors.training.interchange.names import UNUSED, Location, locate
from actors.training.model.decoder import Decoder
from actors.training.parallel.layout import Layouts, local
from orchestrator.spec.sections import ModelSpec


def parameter_shapes(model: ModelSpec, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Every parameter of the whole model, in its order. InterchangeError for a model that is no decoder."""
    if model.imported:
        raise InterchangeError("model.import: no family of checkpoints", [f"{model.function} is no decoder"])
    with torch.device("meta"):
        whole = Decoder(model, vocab_size=vocab_size, positions=1)
    return {name: tuple(parameter.shape) for name, parameter in whole.named_parameters()}


@torch.no_grad()
def load_weights(part: Decoder, layouts: Layouts, directory: Path, *, vocab_size: int) -> None:
    """Fills every parameter of `part` from `directory`; no communication.

    InterchangeError with every difference between the job's model and the directory's before any value is read.
    """
    found = read_config(directory)
    told = differences(part.spec, vocab_size, found)
    if told:
        raise InterchangeError(f"{directory} holds another model than the job describes", told)
    named = dict(part.named_parameters())
    experts = part.spec.moe.experts if part.spec.moe else 0
    with TensorDirectory(directory) as tensors:
        _check(tensors, found, {name: layouts[name].shape for name in named}, vocab_size)
        for name, parameter in named.items():
            mine = local(parameter)
            if mine.numel():
                location = locate(name, found.family, experts=experts)
                _read(tensors, location, mine, layouts[name].offsets())


def _read(tensors: TensorDirectory, location: Location, into: Tensor, offsets: tuple[int, ...]) -> None:
    if not location.stacked:
        into.copy_(tensors.read(location.tensors[0], offsets, into.shape))
        return
    for row, target in enumerate(into.unbind(0)):
        name = location.tensors[offsets[0] + row]
        target.copy_(tensors.read(name, offsets[1:], target.shape))


def _check(
    tensors: TensorDirectory, found: Architecture, shapes: dict[str, tuple[int, ...]], vocab_size: int
) -> None:
    """Names of the whole model, shapes and formats of what this rank reads (`shapes`, of whole parameters)."""
    experts = found.model.moe.experts if found.model.moe else 0
    there = set(tensors.names())
    wanted: dict[str, tuple[int, ...]] = {}
    for name, shape in parameter_shapes(found.model, vocab_size).items():
        location = locate(name, found.family, experts=experts)
        wanted |= dict.fromkeys(location.tensors, shape[1:] if location.stacked else shape)
    reasons = [f"{name} is missing" for name in wanted if name not in there]
    reasons += [
        f"{name} belongs to no part of the model"
        for name in sorted(there - set(wanted))
        if not UNUSED.fullmatch(name)
    ]
    for parameter in shapes:
        for name in locate(parameter, found.family, experts=experts).tensors:
            if name not in there:
                continue
            shape, stored = tensors.shape(name), tensors.stored_as(name)
            if shape != wanted[name]:
                reasons.append(f"{name} has the shape {list(shape)}, must be {list(wanted[name])}")
            if stored not in FLOATS:
                reasons.append(f"{name} is stored as {stored}, must be one of {', '.join(FLOATS)}")
    if reasons:
        raise InterchangeError(f"the weights in {tensors.path} do not fit its config.json", reasons)
