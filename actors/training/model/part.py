"""What a rank trains of a model, as the mechanisms see it: a module, and the blocks it repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Part:
    module: nn.Module
    """Parameter names are those of the whole model."""
    blocks: Mapping[int, nn.Module]
    """By their place in the whole model; none where nobody said what the module repeats."""
