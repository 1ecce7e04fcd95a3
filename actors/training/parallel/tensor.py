"""Tensor and sequence parallelism over the tp axis (Shoeybi et al. 2019; Korthikanti et al. 2022).

Attention heads and the feed-forward's inner size are split by columns, then by rows. With sequence parallelism the
residual stream and the norms are split along positions, and the two all-reduces of a layer become an all-gather and a
reduce-scatter each. Embedding and head are split along the vocabulary (`vocabulary.py`).

Modules keep their own forward; communication sits in hooks around them. Plain tensors and c10d collectives rather than
DTensor: its dispatch cost a small model 1.6 times the CPU time of a step, and its vocabulary-parallel embedding
computes the gradient of every row on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from actors.training.compilation import outside_compiled
from actors.training.model.decoder import Decoder, Layer
from actors.training.model.moe import MoeFeedForward
from actors.training.parallel.buffers import join, put_back
from actors.training.parallel.collectives import copy_in, gather_positions, reduce_out, scatter_positions
from actors.training.parallel.layout import Layouts, ParameterLayout, Span, local
from actors.training.parallel.vocabulary import VocabularyEmbedding

Boundary = Callable[[Tensor, dist.ProcessGroup], Tensor]
PreHook = Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]
Hook = Callable[[nn.Module, Any, Tensor], Tensor]

COLUMNS = ("query", "key", "value", "gate", "up")
ROWS = ("output", "down")
"""Linear weights are (outputs, inputs): a column-parallel one is cut along dimension 0, a row-parallel one along 1."""


def apply_tensor_parallel(
    part: Decoder,
    layouts: dict[str, ParameterLayout],
    group: dist.ProcessGroup,
    *,
    sequence: bool,
    compiled: bool,
) -> None:
    """Cuts the parameters of `part` (on the meta device) to this rank's shards and installs the communication.

    Writes the layout of every parameter it cuts. Experts stay whole: the tokens of tp ranks are different ones there.
    With one rank in the group nothing is changed. `compiled`: layers will be, around the communication.
    """
    if dist.get_world_size(group) == 1:
        return
    enter: Boundary = gather_positions if sequence else copy_in
    leave: Boundary = scatter_positions if sequence else reduce_out
    if compiled:
        enter, leave = outside_compiled(enter), outside_compiled(leave)
    # One of each for all layers: code compiled for one of them then fits the next.
    before, after = _before(enter, group), _after(leave, group)
    for index, layer in part.layers.items():
        assert isinstance(layer, Layer)
        regions: dict[str, nn.Module] = {"attention": layer.attention}
        if not isinstance(layer.feed_forward, MoeFeedForward):
            regions["feed_forward"] = layer.feed_forward
        elif layer.feed_forward.shared is not None:
            regions["feed_forward.shared"] = layer.feed_forward.shared
        for name, region in regions.items():
            _apply_to_region(region, f"layers.{index}.{name}", layouts, group, before, after)
        for name in ("query_norm", "key_norm"):
            full = f"layers.{index}.attention.{name}.weight"
            if full in layouts:  # each rank normalises its own heads only
                layouts[full] = replace(layouts[full], partial_gradient=True)
    if part.embedding is not None:
        cut = cut_parameter(part.embedding, "weight", 0, group)
        layouts["embedding.weight"] = cut
        embedding = VocabularyEmbedding(part.embedding.get_parameter("weight"), cut.cuts[0].span)
        embedding.register_forward_hook(after)
        part.embedding = embedding
    if part.head is not None:
        if part.embedding is not None and part.spec.tied_embeddings:
            part.tie()
        else:
            layouts["head.weight"] = cut_parameter(part.head, "weight", 0, group)
        part.head.register_forward_pre_hook(before)
    if sequence:
        for name, layout in layouts.items():
            if (
                not layout.cuts and not layout.expert
            ):  # norms and routers: each rank sees its own positions only
                layouts[name] = replace(layout, partial_gradient=True)


def _apply_to_region(
    region: nn.Module,
    prefix: str,
    layouts: dict[str, ParameterLayout],
    group: dist.ProcessGroup,
    before: PreHook,
    after: Hook,
) -> None:
    """Splits a pair of projections by columns, then by rows; one communication at the entry, one at the exit."""
    # Gathered once for the projections that share it: their input gradients are added before they are reduced.
    region.register_forward_pre_hook(before)
    for name, projection in region.named_children():
        if name in COLUMNS:
            for parameter, _ in list(projection.named_parameters()):
                layouts[f"{prefix}.{name}.{parameter}"] = cut_parameter(projection, parameter, 0, group)
        elif name in ROWS:
            layouts[f"{prefix}.{name}.weight"] = cut_parameter(projection, "weight", 1, group)
            projection.register_forward_hook(after)


def cut_parameter(module: nn.Module, name: str, dimension: int, group: dist.ProcessGroup) -> ParameterLayout:
    """Replaces a parameter of `module` by this rank's shard."""
    whole = module.get_parameter(name)
    size = dist.get_world_size(group)
    if Span(whole.shape[dimension], size, size - 1).length < 1:
        raise ValueError(
            f"parallelism.tp: {whole.shape[dimension]} cannot be cut so that all {size} ranks get a part"
        )
    span = Span(whole.shape[dimension], size, dist.get_rank(group))
    layout = ParameterLayout(tuple(whole.shape)).cut("tp", dimension, span)
    shard = layout.shard(whole.detach()).clone()
    module.register_parameter(name, nn.Parameter(shard, requires_grad=whole.requires_grad))
    return layout


def _before(boundary: Boundary, group: dist.ProcessGroup) -> PreHook:
    def hook(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (boundary(arguments[0], group), *arguments[1:])

    return hook


def _after(boundary: Boundary, group: dist.ProcessGroup) -> Hook:
    def hook(_: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        return boundary(output, group)

    return hook


@torch.no_grad()
def reduce_partial_gradients(
    parameters: Iterable[tuple[str, nn.Parameter]], layouts: Layouts, group: dist.ProcessGroup
) -> None:
    """Adds up the gradients of which each tp rank holds a part, all of them in one all-reduce."""
    parts = [local(p.grad) for name, p in parameters if layouts[name].partial_gradient and p.grad is not None]
    if not parts:
        return
    flat = join(parts)
    dist.all_reduce(flat, group=group)
    put_back(flat, parts)
