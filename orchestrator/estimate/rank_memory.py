"""Memory of the rank of a plan that needs most, by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from orchestrator.estimate.memory import state_bytes
from orchestrator.estimate.share import Formats, spreads
from orchestrator.estimate.stages import stages_of
from orchestrator.estimate.step import rank_parameters, stage_layers
from orchestrator.estimate.workload import Again, Workload
from orchestrator.spec.sections import ContextMethod, ParallelismSpec, PipelineSchedule

RESERVED_BYTES = 2.0 * 2**30
"""Of an accelerator: the driver's context, kernels and the buffers of communicators."""
LOOSE = 0.04
"""Of activations and buffers: what the caching allocator cannot use between blocks in use."""


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes at the moment of the step when their sum is largest."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    """Logits and their gradients, gathered units or a bucket of gradients, the library's own."""

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def parts(self) -> Mapping[str, float]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def rank_memory(work: Workload, formats: Formats) -> RankMemory:
    """Of the pipeline rank with the largest sum: the first has most in flight, the last has the logits."""
    ranks = sorted({0, min(1, work.plan.pp - 1), work.plan.pp - 1})
    return max((_memory(work, formats, rank) for rank in ranks), key=lambda memory: memory.total)


def _memory(work: Workload, formats: Formats, rank: int) -> RankMemory:
    plan = work.plan
    counts = stage_layers(work.architecture, plan)
    held = rank_parameters(work.architecture, plan, counts, rank)
    pipeline = plan.pp > 1
    parameters = gradients = optimizer = 0.0
    for psi, spread in zip(held, spreads(plan), strict=True):
        if psi:
            zero = plan.zero if spread.shards > 1 else 0
            states = state_bytes(
                psi,
                zero=zero,
                ranks=spread.shards,
                formats=formats,
                microbatches=plan.microbatches,
                pipeline=pipeline,
            )
            parameters += states.parameters
            gradients += states.gradients
            optimizer += states.optimizer
    kept = activation_bytes(work, rank)
    buffers = _logit_bytes(work, formats, rank) + _copies(work, formats, held) + _score_bytes(work)
    loose = LOOSE * (kept + buffers)
    return RankMemory(parameters, gradients, optimizer, kept, buffers + loose + RESERVED_BYTES)


def activation_bytes(work: Workload, rank: int = 0) -> float:
    """What forward keeps for backward on a pipeline rank, all micro-batches in flight."""
    counts = stage_layers(work.architecture, work.plan)
    stages = stages_of(work.plan, rank)
    plain, experts = (sum(counts[s][kind] for s in stages) for kind in (0, 1))
    kept = plain * _mean_layer(work, experts=False) + (
        experts * _mean_layer(work, experts=True) if experts else 0
    )
    return in_flight(work.plan, rank) * kept


def in_flight(plan: ParallelismSpec, rank: int) -> float:
    """Micro-batches of which a rank keeps activations, in units of all its stages.

    | schedule | in flight on rank i of p, v stages each | source |
    | --- | --- | --- |
    | gpipe | m | Huang et al. 2019 |
    | 1f1b | p - i | Narayanan et al. 2021, section 2.2.1 |
    | interleaved-1f1b | (2(p - i - 1) + (v - 1)p + 1) / v | as many chunks go before the first backward |
    | zero-bubble | the same | Qi et al. 2024, ZB-H1: the memory of 1F1B |
    | zbv | p | Qi et al. 2024, section 6 |

    Never more than m. Korthikanti et al. 2022, section 4.2.3, has the first rank's p(1 + (p-1)/(pv)).
    """
    p, m, v = plan.pp, plan.microbatches, plan.virtual_stages
    if p == 1:
        return 1.0
    match plan.schedule:
        case PipelineSchedule.GPIPE:
            return float(m)
        case PipelineSchedule.ZBV:
            return float(min(m, p))
        case _ if v > 1:
            return min(float(m), (2 * (p - rank - 1) + (v - 1) * p + 1) / v)
        case _:
            return float(min(m, p - rank))


def _mean_layer(work: Workload, *, experts: bool) -> float:
    full = layer_bytes(work, work.again, experts=experts)
    if work.again_every == 1 or work.again is Again.NOTHING:
        return full
    plain = layer_bytes(work, Again.NOTHING, experts=experts)
    return plain + (full - plain) / work.again_every


def layer_bytes(work: Workload, again: Again, *, experts: bool) -> float:
    """Bytes that a layer keeps of a micro-batch."""
    model, plan = work.architecture, work.plan
    split = plan.tp if plan.sequence else 1
    own = work.tokens / split
    if again is Again.LAYER:
        return own * model.hidden * work.stack.residual
    if again is Again.ELEMENTWISE:
        return _products_kept(work, experts=experts)
    if not model.gated:
        return _gpt_layer(work, again)
    return _decoder_layer(work, again, experts=experts)


def _products_kept(work: Workload, *, experts: bool) -> float:
    """The layer's input and what its products and attention made: queries, keys, values, the result of attention and
    its projection, gate (where there is one), up and down; of experts theirs and the router's."""
    model, plan = work.architecture, work.plan
    own = work.tokens / (plan.tp if plan.sequence else 1)
    inner = model.matrices - 1
    attention = (2 * model.queries + model.keys) / plan.tp + model.hidden
    made = work.tokens * attention
    if experts:
        moe = model.moe
        assert moe is not None
        size = moe.ffn_hidden or model.ffn_hidden
        made += own * (moe.top_k * (inner * size + model.hidden) + moe.experts)
        made += work.tokens * moe.shared_experts * (inner * size / plan.tp + model.hidden)
    else:
        made += work.tokens * (inner * model.ffn_hidden / plan.tp + model.hidden)
    return own * model.hidden * work.stack.residual + made * _product_bytes(work)


def _gpt_layer(work: Workload, again: Again) -> float:
    """Korthikanti et al. 2022, equations 1 to 4: s b h (10 + 24/t + 5as/(ht)), all of it over t with sequence
    parallelism; without scores s b h (10 + 24/t)."""
    model, plan = work.architecture, work.plan
    split = plan.tp if plan.sequence else 1
    scores = 0.0
    if again is Again.NOTHING and not work.stack.flash:
        scores = 5 * model.heads * work.positions / model.hidden / plan.tp
    return work.tokens * model.hidden * (10 / split + 24 / plan.tp + scores)


def _decoder_layer(work: Workload, again: Again, *, experts: bool) -> float:
    """As `memory.layer_activations` counts it, with formats. Of r bytes of the residual stream and c of products, an
    element each: a norm's input and what it normalised, 2h r; its result once for each product that takes it where
    products are in a shorter format (autocast copies it each time), h c; gate, its SiLU, up, their product; and the
    weights' copies in the shorter format, which backward needs too."""
    model, plan, stack = work.architecture, work.plan, work.stack
    c, r = _product_bytes(work), stack.residual
    own = work.tokens / (plan.tp if plan.sequence else 1)
    takers = 5 if c < r and not stack.fused else 2
    norms = own * model.hidden * r * (2 if stack.fused else 4)
    entries = work.tokens * model.hidden * takers * c
    inner = 4 * model.ffn_hidden * work.tokens / plan.tp
    weights = model.attention_parameters / plan.tp
    if experts:
        moe = model.moe
        assert moe is not None
        size = moe.ffn_hidden or model.ffn_hidden
        inner = own * moe.top_k * (4 * size + 2 * model.hidden)
        inner += 4 * size * moe.shared_experts * work.tokens / plan.tp
        weights += model.matrices * model.hidden * size * moe.experts / plan.ep
        weights += model.matrices * model.hidden * size * moe.shared_experts / plan.tp
    else:
        weights += model.matrices * model.hidden * model.ffn_hidden / plan.tp
    copies = c * weights if stack.casts else 0.0
    return norms + entries + _attention_bytes(work, again) + c * inner + copies


def _attention_bytes(work: Workload, again: Again) -> float:
    """Query, keys and values, the result and its copy in the order of heads. Attention that is computed again starts
    from query and keys as the rotation leaves them, in the format of the residual stream, and keeps no result."""
    model, plan = work.architecture, work.plan
    c, r = _product_bytes(work), work.stack.residual
    keys = model.keys * _key_blocks(plan)
    if again is Again.ATTENTION:
        each = r * (model.queries + keys / 2) + c * (keys / 2 + model.queries)
    else:
        each = c * (3 * model.queries + keys)
    return work.tokens * each / plan.tp


def _key_blocks(plan: ParallelismSpec) -> int:
    """Of keys and values that a context rank keeps: all when it gathers them, its own otherwise."""
    return plan.cp if plan.context is ContextMethod.ALL_GATHER else 1


def _product_bytes(work: Workload) -> int:
    return {"fp64": 8, "fp32": 4}.get(work.precision, 2)


def _logit_bytes(work: Workload, formats: Formats, rank: int) -> float:
    """Logits, their copy in fp32 where they are short, log-softmax and gradient, of one micro-batch."""
    plan, model = work.plan, work.architecture
    if plan.stages - 1 not in stages_of(plan, rank):
        return 0.0
    wide = max(4, formats.product)
    each = 2 * wide + formats.product + (wide if formats.product < wide else 0)
    return work.tokens * model.vocab_size / plan.tp * each


def _score_bytes(work: Workload) -> float:
    """Scores, weights and their gradient of one block in fp32, where a ring writes them."""
    plan, model = work.plan, work.architecture
    if plan.cp == 1 or plan.context is not ContextMethod.RING or not work.stack.masked_context:
        return 0.0
    return 3 * 4 * work.tokens * model.heads / plan.tp * work.positions / plan.cp


def _copies(work: Workload, formats: Formats, held: tuple[float, float]) -> float:
    """A bucket of gradients on its way to other replicas, or the units that ZeRO has gathered and sums."""
    plan = work.plan
    if plan.dp * plan.cp == 1:
        return 0.0
    if not plan.zero:
        # A bucket holds one parameter at least.
        bucket = max(plan.bucket_bytes, _largest_parameter(work) * formats.gradient)
        return min(sum(held) * formats.gradient, bucket)
    unit = _unit(work, formats, held)
    # Two units gathered, or all where they stay so, and one unit's gradients on their way.
    stay = plan.zero == 3 and plan.reshard_after_forward is False and plan.pp == 1
    kept = sum(held) if stay else min(sum(held), 2 * unit)
    return kept * formats.gathered + unit * formats.gradient


def _unit(work: Workload, formats: Formats, held: tuple[float, float]) -> float:
    """Parameters of the largest unit of ZeRO: a block, or as many as `parallelism.bucket_mb` takes (the engine's
    `sharding.py`)."""
    return min(sum(held), max(_block(work, held), work.plan.bucket_bytes / formats.parameter))


def _largest_parameter(work: Workload) -> float:
    model, plan = work.architecture, work.plan
    dense = model.hidden * max(model.vocab_size, model.ffn_hidden) / plan.tp
    if model.moe is None:
        return dense
    inner = model.moe.ffn_hidden or model.ffn_hidden
    return max(dense, model.hidden * inner * model.moe.experts / plan.ep)


def _block(work: Workload, held: tuple[float, float]) -> float:
    """Parameters of a rank, by layer."""
    return sum(held) / max(1, work.architecture.layers / work.plan.pp)
