"""torch.compile, block by block.

A block's own computation is compiled, and everything around it is not: what recomputes it, moves its activations or
gathers its parameters calls the compiled code. Inside, collectives are left to Python, which counts them: the compiler
cuts there.
"""

from __future__ import annotations

from typing import Any

import torch

from actors.training.model.part import Part


def compile_blocks(part: Part) -> None:
    """Compiles the forward of every block at its first call. Comes after what works inside blocks and before what wraps
    them."""
    for block in part.blocks.values():
        block.forward = torch.compile(block.forward)


def outside_compiled(function: Any) -> Any:
    """`function` as compiled code calls it without looking inside."""
    return torch.compiler.disable(function)  # type: ignore[no-untyped-call]
