"""Activation recomputation (Chen et al. 2016): forward keeps a region's inputs, backward computes the rest again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial, wraps
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from actors.training.model.decoder import Layer
from actors.training.model.moe import MoeFeedForward
from actors.training.model.part import Part
from orchestrator.spec.sections import RecomputeSpec

_ATEN = torch.ops.aten
_DEAR = frozenset(
    {
        _ATEN.mm.default,
        _ATEN.addmm.default,
        _ATEN._grouped_mm.default,
        _ATEN._scaled_mm.default,
        _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
        _ATEN._scaled_dot_product_flash_attention.default,
        _ATEN._scaled_dot_product_efficient_attention.default,
        _ATEN._scaled_dot_product_cudnn_attention.default,
        _ATEN._scaled_dot_product_fused_attention_overrideable.default,
    }
)
"""What `elementwise` keeps the results of. Not the batched products: attention without a fused kernel makes its scores
with them."""

Contexts = Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]]
"""Of a forward and of its repetition."""


def install_recompute(part: Part, spec: RecomputeSpec) -> None:
    """Wraps the forward of every n-th block, or of what attends inside it (Korthikanti et al. 2022, section 5).

    `elementwise` repeats a block with the results of its products at hand (torch's selective checkpointing).
    """
    if spec.mode == "none":
        return
    for index, block in part.blocks.items():
        if index % spec.every == 0:
            # Our own layers draw no random numbers, so the generators' state need not be kept.
            if spec.mode == "selective":
                assert isinstance(block, Layer)
                _wrap(block.attention.mix, keep_random=False)
            elif spec.mode == "elementwise":
                contexts = partial(create_selective_checkpoint_contexts, _policy)
                _wrap(block, keep_random=False, contexts=contexts)
            else:
                _wrap(block, keep_random=not isinstance(block, Layer))


def _policy(_: Any, operation: Any, *__: Any, **___: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operation in _DEAR else CheckpointPolicy.PREFER_RECOMPUTE


def _wrap(region: nn.Module, *, keep_random: bool, contexts: Contexts | None = None) -> None:
    forward = region.forward
    experts = [module for module in region.modules() if isinstance(module, MoeFeedForward)]

    @contextmanager
    def again(inner: AbstractContextManager[Any]) -> Any:
        with ExitStack() as stack:
            for module in experts:
                stack.enter_context(module.not_counting())
            stack.enter_context(inner)
            yield

    def both() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        first, second = contexts() if contexts is not None else (nullcontext(), nullcontext())
        return first, again(second)

    # Only where it has something to do: the compiler, which meets what attends inside a layer, takes it for a policy.
    extra: dict[str, Any] = {"context_fn": both} if experts or contexts is not None else {}

    @wraps(forward)
    def recomputed(*arguments: Any, **named: Any) -> Any:
        return checkpoint(
            forward,
            *arguments,
            use_reentrant=False,
            preserve_rng_state=keep_random,
            **extra,
            **named,
        )

    region.forward = recomputed
