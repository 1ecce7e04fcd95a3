"""Activation recomputation (Chen et al. 2016): forward keeps a region's inputs, backward computes the rest again."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from actors.training.model.decoder import Layer
from actors.training.model.moe import MoeFeedForward
from actors.training.model.part import Part
from orchestrator.spec.sections import RecomputeSpec


def install_recompute(part: Part, spec: RecomputeSpec) -> None:
    """Wraps the forward of every n-th block, or of what attends inside it (Korthikanti et al. 2022, section 5)."""
    if spec.mode == "none":
        return
    for index, block in part.blocks.items():
        if index % spec.every == 0:
            # Our own layers draw no random numbers, so the generators' state need not be kept.
            if spec.mode == "selective":
                assert isinstance(block, Layer)
                _wrap(block.attention.mix, keep_random=False)
            else:
                _wrap(block, keep_random=not isinstance(block, Layer))


def _wrap(region: nn.Module, *, keep_random: bool) -> None:
    forward = region.forward
    experts = [module for module in region.modules() if isinstance(module, MoeFeedForward)]

    @contextmanager
    def again() -> Any:
        with ExitStack() as stack:
            for module in experts:
                stack.enter_context(module.not_counting())
            yield

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), again()

    # Only where it has something to do: the compiler, which meets what attends inside a layer, takes it for a policy.
    extra: dict[str, Any] = {"context_fn": contexts} if experts else {}

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
