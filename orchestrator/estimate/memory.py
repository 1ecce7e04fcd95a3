"""Memory of a rank in training: states, and what forward keeps for backward.

States are those of Adam. Published forms count mixed precision with short parameters and gradients beside fp32 copies
of the parameters. The engine keeps the fp32 parameters, makes short ones only where it gathers, and sums gradients in
fp32, so that sums over many micro-batches and ranks lose nothing, or in bf16 (`Formats`).
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.estimate.share import Formats
from orchestrator.spec.job import JobSpec


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes of a rank at the moment of the step when the sum is largest."""

    parameters: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.optimizer


def published_states(psi: float, *, zero: int, ranks: int) -> float:
    """Bytes of the states of `psi` parameters by Rajbhandari et al. 2020, figure 1: 16 Psi without ZeRO, with its
    stages 4 Psi + 12 Psi/P, 2 Psi + 14 Psi/P and 16 Psi/P."""
    return psi * (16, 4 + 12 / ranks, 2 + 14 / ranks, 16 / ranks)[zero]


def state_bytes(
    psi: float, *, zero: int, ranks: int, formats: Formats, microbatches: int, pipeline: bool = False
) -> StateBytes:
    """What the engine holds for `psi` parameters that `ranks` share, without the one or two layers that zero 3 has
    gathered at a time.

    With w bytes of a gathered parameter and g of a gradient, over fp32 parameters and several micro-batches: zero 0
    (12+g) Psi; zero 1 (w+g) Psi + 12 Psi/P; zero 2 w Psi + (12+g) Psi/P; zero 3 (12+g) Psi/P. So w = g = 2 is the
    published form of zero 1 and 2, and g = 4 that of 0 and 3. With one micro-batch gradients are scattered as they come
    and gathered parameters freed, so zero 1 and 2 hold w Psi + 12 Psi/P. Under a pipeline stages 2 and 3 keep what
    stage 1 keeps.
    """
    kept, gradient, gathered = formats.parameter, formats.gradient, formats.gathered
    moments = 2 * kept
    if zero == 0:
        return StateBytes(kept * psi, gradient * psi, moments * psi)
    shard = psi / ranks
    stage = 1 if pipeline else zero
    if stage == 3:
        return StateBytes(kept * shard, gradient * shard, moments * shard)
    if microbatches == 1:
        # Backward turns gathered parameters into scattered gradients: the larger of the two counts.
        whole = gathered * psi
        if whole >= gradient * shard:
            return StateBytes(kept * shard + whole, 0.0, moments * shard)
        return StateBytes(kept * shard, gradient * shard, moments * shard)
    summed = gradient * (psi if stage == 1 else shard)
    return StateBytes(kept * shard + gathered * psi, summed, moments * shard)


def layer_activations(spec: JobSpec, *, sequences: int, mode: str = "none") -> float:
    """Bytes that a layer without experts keeps of `sequences` whole sequences, unsplit, without autocast.

    Counted as Korthikanti et al. 2022, section 4.1 count, for this model: RMSNorm, SwiGLU, no dropout, attention that
    keeps no scores. In elements a token: of each norm its input, the input normalised and the result, 6h (fused kernels
    keep 4h); queries, the result of attention and its copy in the order of heads; keys and values; gate, its SiLU, up
    and their product, 4f; a log-sum-exp a head, a factor a norm. Biases and norms of heads are not counted.
    `selective`: attention is computed again, so its result and log-sum-exp go. `full`: the layer's input alone is kept.
    `elementwise`: beside it the results of products and attention.
    """
    model = spec.model
    queries = model.heads * model.size_of_head
    keys = 2 * model.kv_heads * model.size_of_head
    if mode == "full":
        elements = model.hidden
    elif mode == "elementwise":
        elements = 3 * model.hidden + 2 * queries + keys + 2 * model.ffn_hidden + model.heads
    else:
        elements = 6 * model.hidden + 2 * queries + keys + 4 * model.ffn_hidden + 2
        elements += queries + model.heads if mode == "none" else 0
    tokens = sequences * spec.training.sequence_length
    return float(tokens * elements * Formats.of(spec.training).parameter)


def published_layer_activations(
    *, positions: int, sequences: int, hidden: int, heads: int, scores: bool
) -> float:
    """Bytes of a layer in 16 bit by Korthikanti et al. 2022, equation 1: s b h (34 + 5 a s / h); without the second
    term where attention keeps no scores (selective recompute, or flash attention). For a GPT layer: LayerNorm, GELU of
    4h, dropout."""
    per_token = 34 + (5 * heads * positions / hidden if scores else 0)
    return positions * sequences * hidden * per_token
