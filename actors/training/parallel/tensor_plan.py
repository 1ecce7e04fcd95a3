"""Tensor parallelism of an imported model, as the job's `model.tp_plan` says (Shoeybi et al. 2019).

| split | module | parameters | communication |
| --- | --- | --- | --- |
| colwise | Linear | outputs cut | gradients of inputs added up |
| rowwise | Linear | inputs cut, the bias whole | results added up |
| rowwise | Embedding | vocabulary cut | results added up |

What lies between a colwise module and a rowwise one sees a part of the features. A colwise module that nothing follows
gives a part of the logits, and the loss is that of a split vocabulary.

The plan is the user's, so it is proven before it is used: the graph of a dry run is walked from the output to the
parameters, and each must lie on the side of the communication where its cut, or its being whole, belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, cast

import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from actors.training.model.dry_run import DryRun, dry_run
from actors.training.parallel.collectives import copy_in, reduce_out
from actors.training.parallel.layout import ParameterLayout, Span
from actors.training.parallel.tensor import cut_parameter
from actors.training.parallel.vocabulary import VocabularyEmbedding
from orchestrator.spec.sections import Split


def resolve_plan(module: nn.Module, plan: Mapping[str, Split]) -> dict[str, Split]:
    """The modules of the whole model that are split, by name. ValueError with every pattern that fits none, or one that
    cannot be split so."""
    named = dict(module.named_modules())
    shared = _shared(module)
    found: dict[str, Split] = {}
    reasons = []
    for pattern, split in plan.items():
        matched = [name for name in named if _matches(name, pattern)]
        reasons += [] if matched else [f"{pattern} matches no module"]
        for name in matched:
            if found.setdefault(name, split) is not split:
                reasons.append(f"{name} matches both a {found[name].value} and a {split.value} pattern")
            elif split is not Split.REPLICATE:
                reasons += _unsplittable(name, named[name], split, shared)
    if reasons:
        raise ValueError(f"model.tp_plan: {'; '.join(reasons)}")
    return {name: split for name, split in found.items() if split is not Split.REPLICATE}


def _unsplittable(name: str, module: nn.Module, split: Split, shared: set[str]) -> Iterator[str]:
    kinds: tuple[type[nn.Module], ...] = (nn.Linear,) if split is Split.COLWISE else (nn.Linear, nn.Embedding)
    if type(module) not in kinds:
        known = " or ".join(kind.__name__ for kind in kinds)
        yield f"{name} is a {type(module).__name__}, {split.value} is for {known}"
    elif any(f"{name}.{parameter}" in shared for parameter, _ in module.named_parameters()):
        yield f"{name} shares its weight with another module"
    elif isinstance(module, nn.Embedding) and (module.padding_idx, module.max_norm) != (None, None):
        yield f"{name} has a padding_idx or a max_norm, which a split embedding does not"


def apply_tensor_plan(
    module: nn.Module,
    layouts: dict[str, ParameterLayout],
    group: dist.ProcessGroup,
    splits: Mapping[str, Split],
    *,
    example: Tensor,
    vocab_size: int | None,
) -> bool:
    """Cuts the parameters of a part to this rank's shards, installs the communication and writes the layouts.

    `splits`: what `resolve_plan` gave for the whole model. `example`: an input of the part on the meta device.
    `vocab_size`: of the logits; None for a part that gives hidden states. Returns whether the logits are this rank's
    share of them. ValueError when the plan does not fit the module's forward.
    """
    whole = dry_run(module, example).output
    for name, inner in list(module.named_modules()):
        if name in splits:
            _split(module, name, inner, splits[name], layouts, group)
    try:
        run = dry_run(module, example)
    except Exception as error:
        words = " ".join(str(error).split())
        raise ValueError(
            f"model.tp_plan: on this rank's part of the features the module's forward raised "
            f"{type(error).__name__}: {words}"
        ) from error
    cut = vocab_size is not None and _is_share(run.output, whole, vocab_size, group)
    if not cut and run.output.shape != whole.shape:
        raise ValueError(
            f"model.tp_plan: split so, a part of the model gives {list(run.output.shape)} in place of "
            f"{list(whole.shape)}: end what a colwise module begins with a rowwise one"
        )
    _prove(run, layouts, sharded_output=cut)
    return cut


def _is_share(output: Tensor, whole: Tensor, vocab_size: int, group: dist.ProcessGroup) -> bool:
    span = Span(vocab_size, dist.get_world_size(group), dist.get_rank(group))
    return output.shape == (*whole.shape[:-1], span.length)


def _matches(name: str, pattern: str) -> bool:
    """`*` is any one part of a path."""
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _shared(module: nn.Module) -> set[str]:
    """Names of the parameters that have several."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return {name for several in names.values() if len(several) > 1 for name in several}


def _split(
    module: nn.Module,
    name: str,
    inner: nn.Module,
    split: Split,
    layouts: dict[str, ParameterLayout],
    group: dist.ProcessGroup,
) -> None:
    if split is Split.COLWISE:
        for parameter, _ in list(inner.named_parameters()):
            layouts[f"{name}.{parameter}"] = cut_parameter(inner, parameter, 0, group)
        inner.register_forward_pre_hook(lambda _, arguments: (_enter(arguments[0], group), *arguments[1:]))
        return
    if isinstance(inner, nn.Embedding):
        layouts[f"{name}.weight"] = layout = cut_parameter(inner, "weight", 0, group)
        embedding = VocabularyEmbedding(cast(nn.Parameter, inner.weight), layout.cuts[0].span)
        embedding.register_forward_hook(lambda _, __, rows: _leave(rows, group))
        module.set_submodule(name, embedding)
        return
    assert isinstance(inner, nn.Linear)
    layouts[f"{name}.weight"] = cut_parameter(inner, "weight", 1, group)
    inner.forward = _rowwise(inner, group)  # type: ignore[method-assign, assignment]


def _rowwise(linear: nn.Linear, group: dist.ProcessGroup) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        result = _leave(F.linear(x, linear.weight), group)
        return result if linear.bias is None else result + linear.bias  # once, not on every rank

    return forward


def _enter(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    return cast(Tensor, _Enter.apply(x)) if x.is_meta else copy_in(x, group)  # type: ignore[no-untyped-call]


def _leave(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    return cast(Tensor, _Leave.apply(x)) if x.is_meta else reduce_out(x, group)  # type: ignore[no-untyped-call]


class _Mark(Function):
    """In a dry run: where the communication will be."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class _Enter(_Mark):
    """Into where each rank has a part of the features."""


class _Leave(_Mark):
    """Out of there."""


def _prove(run: DryRun, layouts: dict[str, ParameterLayout], *, sharded_output: bool) -> None:
    """Inside a split region every tensor's gradient is this rank's part; outside it is whole. A cut parameter must be
    reached inside alone; a whole one inside alone gets its parts added up, and may not be reached both ways."""
    names = {id(leaf): name for name, leaf in run.parameters.items()}
    sides: dict[str, set[bool]] = {}
    seen: set[tuple[Any, bool]] = set()
    past_entry = False
    waiting = [(run.output.grad_fn, sharded_output)]
    while waiting:
        node, inside = waiting.pop()
        if node is None or (node, inside) in seen:
            continue
        seen.add((node, inside))
        kind = getattr(node, "_forward_cls", None)
        if kind is _Leave:
            past_entry |= inside
            inside = True
        elif kind is _Enter:
            inside = False
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) in names:
            sides.setdefault(names[id(leaf)], set()).add(inside)
        waiting += [(following, inside) for following, _ in node.next_functions]
    reasons = ["what a rowwise module gives enters a split region past any colwise module"] * past_entry
    for name, found in sides.items():
        layout = layouts[name]
        cut = any(cut.axis == "tp" for cut in layout.cuts)
        if cut and False in found:
            reasons.append(f"{name} is cut, but what comes of it reaches the output without being added up")
        elif not cut and len(found) == 2:
            reasons.append(
                f"{name} acts on a split region both through a colwise module and past it, so its gradient is neither "
                "whole nor a part"
            )
        elif not cut and True in found:
            layouts[name] = replace(layout, partial_gradient=True)
    if reasons:
        raise ValueError(f"model.tp_plan does not fit the module's forward: {'; '.join(reasons)}")
