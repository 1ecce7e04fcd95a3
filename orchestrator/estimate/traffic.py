"""Bytes that a rank sends in a training step, by axis, as the ring algorithm sends them (Thakur et al. 2005).

P ranks, n bytes of the whole tensor: all-reduce 2n(P-1)/P, all-gather and reduce-scatter n(P-1)/P, all-to-all what
leaves the rank, point to point n. Formulas count what the engine does, a collective at a time; its measured bytes are
held against them. Not counted: padding of uneven shards, and `control` (norm, loss, loads: some numbers a step).
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.estimate.share import Formats, Share, Spread, Stage, share_of, spreads
from orchestrator.spec.job import JobSpec
from orchestrator.spec.sections import ContextMethod, ParallelismSpec, Precision

COUNT_BYTES = 8
"""Counts and indices travel as int64, sums of counts as float64."""


def ring_all_reduce(size: float, ranks: int) -> float:
    return 2 * size * (ranks - 1) / ranks


def ring_gather(size: float, ranks: int) -> float:
    """All-gather or reduce-scatter of `size` bytes in the whole; an all-to-all in equal parts sends as much."""
    return size * (ranks - 1) / ranks


def step_traffic(spec: JobSpec, stages: Sequence[Stage], *, leaving: float | None = None) -> dict[str, float]:
    """Bytes by axis that a rank holding `stages` sends; axes without traffic are left out.

    `leaving`: share of the rows for experts that leave their rank; None: (e-1)/e, routing without preference.
    """
    share = share_of(spec, stages)
    found = {
        "tp": tensor_traffic(spec, stages, share),
        "cp": context_traffic(spec, stages),
        "pp": pipeline_traffic(spec, stages),
        "dp": replica_traffic(spec, share),
        "ep": expert_traffic(spec, stages, leaving=leaving),
        "shard": shard_traffic(spec, share),
    }
    return {axis: sent for axis, sent in found.items() if sent}


def replica_traffic(spec: JobSpec, share: Share) -> float:
    """Gradients of replicas: 2 x Psi x (P-1)/P once a step. With ZeRO each replica holds a shard of them, and sums it
    whenever gradients are scattered."""
    formats, times = Formats.of(spec.training), scatters(spec.parallelism)
    dense, experts = spreads(spec.parallelism)

    def of(count: float, spread: Spread) -> float:
        return times * ring_all_reduce(count * formats.gradient / spread.shards, spread.replicas)

    return of(share.dense, dense) + of(share.experts, experts)


def shard_traffic(spec: JobSpec, share: Share) -> float:
    """ZeRO: parameters are gathered and gradients scattered, Psi x (P-1)/P each time.

    Zero 3 gathers for forward and again for backward, so one micro-batch costs 3 x Psi x (P-1)/P (Rajbhandari et al.
    2020, section 7.2).
    """
    plan, formats = spec.parallelism, Formats.of(spec.training)
    if not plan.zero:
        return 0.0

    def of(count: float, spread: Spread) -> float:
        whole = count * formats.gathered
        sent = scatters(spec.parallelism) * ring_gather(count * formats.gradient, spread.shards)
        if plan.zero < 3 or plan.pp > 1 or plan.reshard_after_forward is False:
            rounds = plan.microbatches if plan.zero == 3 and plan.pp == 1 else 1
            return sent + rounds * ring_gather(whole, spread.shards)
        again = spread.shards if plan.reshard_after_forward is True else plan.reshard_after_forward
        gathers = ring_gather(whole, spread.shards) + ring_gather(whole, again)
        return sent + plan.microbatches * gathers

    dense, experts = spreads(spec.parallelism)
    return of(share.dense, dense) + of(share.experts, experts)


def scatters(plan: ParallelismSpec) -> int:
    """How often a step sums the gradients of a parameter over ranks."""
    return plan.microbatches if plan.zero >= 2 and plan.pp == 1 else 1


def tensor_traffic(spec: JobSpec, stages: Sequence[Stage], share: Share) -> float:
    """Four all-reduces of b s h a layer and micro-batch (Shoeybi et al. 2019, section 3); with sequence parallelism
    each is an all-gather and a reduce-scatter of the same bytes (Korthikanti et al. 2022, section 4.2.2).

    Embedding and head have one each; the loss sends three numbers a token; gradients of which each rank has a part are
    added up once a step.
    """
    plan, model, training = spec.parallelism, spec.model, spec.training
    if plan.tp == 1:
        return 0.0
    formats = Formats.of(training)
    tokens = _tokens(spec)

    def half(size: int) -> float:
        """Half an all-reduce of the hidden states of a micro-batch, in elements of `size` bytes."""
        return ring_gather(tokens * model.hidden * size, plan.tp)

    # The entry of a region passes the residual stream, its exit the result of a product.
    region = 2 * half(formats.parameter) + 2 * half(formats.product)
    sent = 0.0
    for stage in stages:
        for layer in stage.layers:
            moe = model.moe if model.is_moe(layer) else None
            regions = 1 if moe is not None and not moe.shared_experts else 2
            sent += regions * region
            if _recomputed(spec, layer):
                # Forward again: all but the last exit, whose result nothing needs.
                forward = half(formats.parameter) + half(formats.product)
                sent += regions * forward * (1 if plan.sequence else 0)
                sent += 0 if plan.sequence else regions * 2 * half(formats.product)
                last_is_exit = moe is None or bool(moe.shared_experts)
                sent -= half(formats.product) * (1 if plan.sequence else 2) if last_is_exit else 0
        sent += 2 * half(formats.parameter) if stage.embeds else 0.0
        if stage.predicts:
            sent += 2 * half(formats.parameter)
            wide = 8 if training.precision is Precision.FP64 else 4
            sent += ring_all_reduce(3 * tokens * wide, plan.tp)
    dense, _ = spreads(spec.parallelism)
    partial = ring_all_reduce(share.partial * formats.gradient / dense.shards, plan.tp)
    return plan.microbatches * sent + partial


def context_traffic(spec: JobSpec, stages: Sequence[Stage]) -> float:
    """Of one rank, b sequences of s/c positions, kv bytes of a position's key and value:

    - all-gather: kv b (s/c) (c-1) forward, as much backward; gathered again where attention is recomputed.
    - ring: the same forward; backward passes keys, values and their gradients c times.
    - Ulysses: (c-1)/c of queries, keys, values and results, forward and backward.
    """
    plan, model, formats = spec.parallelism, spec.model, Formats.of(spec.training)
    if plan.cp == 1:
        return 0.0
    positions = _tokens(spec)
    keys = 2 * model.kv_heads * model.size_of_head / plan.tp
    queries = 2 * model.heads * model.size_of_head / plan.tp
    # The rotation is computed in the format of its table, and keys are stacked with values in the longer format.
    gathered = formats.parameter
    if plan.context is ContextMethod.ULYSSES:
        rotated, products = (queries + keys) / 2, (queries + keys) / 2
        traded = rotated * formats.parameter + products * formats.product
        forward = backward = ring_gather(positions * traded, plan.cp)
    elif plan.context is ContextMethod.RING:
        forward = positions * keys * gathered * (plan.cp - 1)
        backward = positions * 2 * keys * max(4, formats.parameter) * plan.cp
    else:
        forward = backward = positions * keys * gathered * (plan.cp - 1)
    sent = 0.0
    for stage in stages:
        for layer in stage.layers:
            again = _recomputed(spec, layer) or _attention_recomputed(spec, layer)
            sent += forward * (2 if again else 1) + backward
    return plan.microbatches * sent


def pipeline_traffic(spec: JobSpec, stages: Sequence[Stage]) -> float:
    """Hidden states of a micro-batch to the next stage, their gradients to the one before: b s h each, over t with
    sequence parallelism. Stages that follow each other on one rank send nothing."""
    plan, model, formats = spec.parallelism, spec.model, Formats.of(spec.training)
    own = {stage.index for stage in stages}
    crossings = sum(
        (not stage.predicts and stage.index + 1 not in own)
        + (not stage.embeds and stage.index - 1 not in own)
        for stage in stages
    )
    split = plan.tp if plan.sequence else 1
    return plan.microbatches * crossings * _tokens(spec) * model.hidden * formats.parameter / split


def expert_traffic(spec: JobSpec, stages: Sequence[Stage], *, leaving: float | None = None) -> float:
    """Rows to the experts of other ranks and back, forward and backward: 2 + 2 all-to-alls of tokens x k x h (Lepikhin
    et al. 2021), and the counts that go before them. Where ranks share sequences they also add up the counts of each
    sequence (auxiliary loss) and gather the choices (capacity)."""
    plan, model, formats = spec.parallelism, spec.model, Formats.of(spec.training)
    moe = model.moe
    if moe is None:
        return 0.0
    sharing = plan.cp * plan.tp
    sequences = spec.training.global_batch / (plan.dp * plan.microbatches)
    # Without sequence parallelism every tp rank routes the same positions.
    tokens = _tokens(spec) / (plan.tp if plan.sequence else 1)
    away = (plan.ep - 1) / plan.ep if leaving is None else leaving
    one_way = tokens * moe.top_k * model.hidden * away if plan.ep > 1 else 0.0
    counts = ring_gather(moe.experts * COUNT_BYTES, plan.ep)
    shared = ring_all_reduce(sequences * moe.experts * COUNT_BYTES, sharing) if moe.balance == "loss" else 0.0
    if moe.capacity_factor is not None:
        shared += ring_gather(sharing * tokens * moe.top_k * COUNT_BYTES, sharing)
    sent = 0.0
    for stage in stages:
        for layer in stage.layers:
            if model.is_moe(layer):
                forward = one_way * (formats.parameter + formats.product)
                times = 2 if _recomputed(spec, layer) else 1
                sent += times * (forward + counts + shared) + forward
    return plan.microbatches * sent


def _tokens(spec: JobSpec) -> float:
    """Tokens of a micro-batch on one rank."""
    plan, training = spec.parallelism, spec.training
    return training.global_batch * training.sequence_length / (plan.dp * plan.microbatches * plan.cp)


def _recomputed(spec: JobSpec, layer: int) -> bool:
    """Whether the collectives inside a layer run again."""
    recompute = spec.training.recompute
    return recompute.mode in ("full", "elementwise") and layer % recompute.every == 0


def _attention_recomputed(spec: JobSpec, layer: int) -> bool:
    recompute = spec.training.recompute
    return recompute.mode == "selective" and layer % recompute.every == 0
