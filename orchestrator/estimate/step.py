"""Seconds of a training step under a plan, and what follows: tokens a second, utilisation, time to a token budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from math import ceil

from orchestrator.estimate.communication import all_reduce_s, exposed_s, gather_s, send_s
from orchestrator.estimate.compute import product_s, stream_s
from orchestrator.estimate.hardware import Accelerator, Path
from orchestrator.estimate.layer import LayerSeconds, Paths, Piece, layer_seconds
from orchestrator.estimate.network import Network
from orchestrator.estimate.pipeline import bubble_of
from orchestrator.estimate.share import Spread, spreads
from orchestrator.estimate.stages import split_blocks, stages_of
from orchestrator.estimate.traffic import scatters
from orchestrator.estimate.workload import Again, Architecture, Workload
from orchestrator.spec.sections import ParallelismSpec, PipelineSchedule

OPTIMIZER_BYTES = 44
"""Read and written a parameter by Adam and what goes before: norm 4, scaling 8, parameter, gradient and two moments
read 16 and three written 12, gradient zeroed 4. In fp32."""
LOSS_BYTES = 30
"""Read and written a logit: from the short format to fp32 6, log-softmax forward 8 and backward 12, back again 4."""


class Convention(StrEnum):
    """How model FLOPs count; published figures differ."""

    CAUSAL = "causal"
    """Attention's causal half (Megatron-LM today, this engine's reports)."""
    FULL = "full"
    """All of attention (Narayanan et al. 2021, Korthikanti et al. 2022, torchtitan)."""


@dataclass(frozen=True)
class StepSeconds:
    """Parts add up to `total`. Of the rank of the pipeline that is busy longest, but for `bubble`."""

    forward: float
    backward: float
    again: float
    bubble: float
    exposed: dict[str, float]
    """Communication that nothing hides, by axis."""
    optimizer: float

    @property
    def total(self) -> float:
        compute = self.forward + self.backward + self.again
        return compute + self.bubble + sum(self.exposed.values()) + self.optimizer


@dataclass(frozen=True, slots=True)
class Rate:
    tokens_per_s: float
    model_flops: float
    """Of a step."""
    mfu: float
    convention: Convention


def step_seconds(work: Workload, device: Accelerator, network: Network) -> StepSeconds:
    """Without stalls of data, checkpoints and stragglers."""
    plan = work.plan
    dense, experts = (_layer(work, device, network, experts=experts) for experts in (False, True))
    counts = stage_layers(work.architecture, plan)
    ends = _ends(work, device)
    microbatch = [_rank(work, dense, experts, counts, rank, ends) for rank in range(plan.pp)]
    slowest = max(microbatch, key=lambda one: one.total)
    transfers = _transfers(work, network)
    times = [one.total + transfers for one in microbatch]
    idle = _idle(plan, sum(times) / len(times))
    m = plan.microbatches
    exposed = {axis: m * s for axis, s in slowest.exposed.items()}
    if transfers:
        exposed["pp"] = m * transfers
    states = _states(work, network, counts)
    for axis, s in _replicas(work, device, states, slowest).items():
        exposed[axis] = exposed.get(axis, 0.0) + s
    own = sum(kind.parameters / kind.spread.shards for kind in states)
    update = stream_s(device, OPTIMIZER_BYTES * own)
    return StepSeconds(m * slowest.forward, m * slowest.backward, m * slowest.again, idle, exposed, update)


def rate(work: Workload, device: Accelerator, seconds: float, convention: Convention) -> Rate:
    flops = model_flops(work, convention)
    peak = device.peak[work.precision] * work.plan.world_size
    return Rate(work.step_tokens / seconds, flops, flops / seconds / peak, convention)


def model_flops(work: Workload, convention: Convention) -> float:
    """Of a step: 6 a weight and token, the head's among them and the embedding's not, and attention."""
    model = work.architecture
    passed = model.parameters - model.vocab_size * model.hidden
    if model.moe is not None:
        inner = model.moe.ffn_hidden or model.ffn_hidden
        idle = model.moe.experts - model.moe.top_k
        passed -= (model.layers - model.dense_layers) * model.matrices * model.hidden * inner * idle
    attention = (6 if convention is Convention.CAUSAL else 12) * model.layers * model.queries
    return work.step_tokens * (6.0 * passed + attention * work.positions)


def time_to(tokens: float, work: Workload, seconds: float) -> tuple[float, float]:
    """(seconds, GPU-hours) of `tokens` at `seconds` a step, nothing lost."""
    whole = ceil(tokens / work.step_tokens) * seconds
    return whole, whole * work.plan.world_size / 3600


def _idle(plan: ParallelismSpec, microbatch_s: float) -> float:
    """Seconds a rank idles in a step, of `microbatch_s` for its part of a micro-batch.

    `bubble` has zero for zbv because its ranks begin and end one after the other. A step here ends for all at once,
    when gradients are clipped together, so the last rank's wait counts: p-1 forward passes of stages that are half a
    rank's, a sixth of its time each.
    """
    idle = bubble_of(plan) * plan.microbatches
    if plan.schedule is PipelineSchedule.ZBV and plan.pp > 1:
        idle += (plan.pp - 1) / 6
    return idle * microbatch_s


@lru_cache(maxsize=4096)
def stage_layers(model: Architecture, plan: ParallelismSpec) -> tuple[tuple[int, int], ...]:
    """(layers without, with experts) of each stage, dealt as the engine deals them."""
    return _stage_layers(model, plan.stages, plan.layers_per_stage)


@lru_cache(maxsize=4096)
def _stage_layers(
    model: Architecture, stages: int, by_hand: tuple[int, ...] | None
) -> tuple[tuple[int, int], ...]:
    moe = model.moe
    plain = model.attention_parameters + model.matrices * model.hidden * model.ffn_hidden
    costs = [plain] * model.dense_layers
    if moe is not None:
        inner = (moe.ffn_hidden or model.ffn_hidden) * (moe.top_k + moe.shared_experts)
        with_experts = model.attention_parameters + model.matrices * model.hidden * inner
        costs += [with_experts] * (model.layers - model.dense_layers)
    table = model.vocab_size * model.hidden
    ranges = split_blocks(costs, (table, table), ParallelismSpec(pp=stages, layers_per_stage=by_hand))
    return tuple(
        (
            sum(1 for layer in part if layer < model.dense_layers),
            sum(1 for layer in part if layer >= model.dense_layers),
        )
        for part in ranges
    )


def _layer(work: Workload, device: Accelerator, network: Network, *, experts: bool) -> LayerSeconds:
    plan, model = work.plan, work.architecture
    if experts == (model.moe is None):
        return LayerSeconds(0.0, 0.0, 0.0)
    piece = Piece(
        model,
        work.stack,
        work.precision,
        work.micro_sequences,
        work.positions,
        plan.tp,
        plan.cp,
        plan.ep,
        plan.sequence and plan.tp > 1,
        experts,
        work.again,
        plan.context,
    )
    paths = Paths(
        network.path(work.group("tp")),
        network.path(work.group("cp")),
        network.path(work.group("ep")),
    )
    found = layer_seconds(device, piece, paths)
    if work.again_every == 1 or work.again is Again.NOTHING:
        return found
    plain = layer_seconds(device, replace(piece, again=Again.NOTHING), paths)
    return _mixed(found, plain, 1 / work.again_every)


def _mixed(one: LayerSeconds, other: LayerSeconds, share: float) -> LayerSeconds:
    axes = one.exposed | other.exposed
    return LayerSeconds(
        one.forward,
        one.backward,
        one.again * share,
        {a: share * one.exposed.get(a, 0) + (1 - share) * other.exposed.get(a, 0) for a in axes},
    )


def _ends(work: Workload, device: Accelerator) -> tuple[LayerSeconds, LayerSeconds]:
    """The embedding and the head with the loss, of a micro-batch."""
    plan, model = work.plan, work.architecture
    rows, columns = ceil(work.tokens), ceil(model.vocab_size / plan.tp)

    def product(rows: int, columns: int, inner: int) -> float:
        return product_s(device, rows, columns, inner, precision=work.precision)

    looked_up = stream_s(device, work.tokens * model.hidden * 2 * work.stack.residual)
    loss = stream_s(device, LOSS_BYTES * float(rows) * columns)
    forward = product(rows, columns, model.hidden)
    backward = product(rows, model.hidden, columns) + product(model.hidden, columns, rows)
    return (
        LayerSeconds(looked_up, looked_up, 0.0),
        LayerSeconds(forward + loss / 2, backward + loss / 2, 0.0),
    )


def _rank(
    work: Workload,
    dense: LayerSeconds,
    experts: LayerSeconds,
    counts: Sequence[tuple[int, int]],
    rank: int,
    ends: tuple[LayerSeconds, LayerSeconds],
) -> LayerSeconds:
    """A micro-batch through all stages of a pipeline rank."""
    stages = stages_of(work.plan, rank)
    parts = [(dense, sum(counts[s][0] for s in stages)), (experts, sum(counts[s][1] for s in stages))]
    parts += [(ends[0], 1)] if 0 in stages else []
    parts += [(ends[1], 1)] if work.plan.stages - 1 in stages else []
    exposed: dict[str, float] = {}
    for layer, count in parts:
        for axis, s in layer.exposed.items():
            exposed[axis] = exposed.get(axis, 0.0) + count * s
    return LayerSeconds(
        sum(count * layer.forward for layer, count in parts),
        sum(count * layer.backward for layer, count in parts),
        sum(count * layer.again for layer, count in parts),
        exposed,
    )


def _transfers(work: Workload, network: Network) -> float:
    """Hidden states and their gradients between stages, of a micro-batch on a rank in the middle: what it receives
    passes beside what it sends, and it waits for both."""
    plan = work.plan
    if plan.pp == 1:
        return 0.0
    size = work.tokens * work.architecture.hidden * work.stack.residual
    split = plan.tp if plan.sequence or work.stack.scatters_stages else 1
    each = send_s(network.link(work.group("pp")), size / split)
    if work.stack.scatters_stages and not plan.sequence:
        each += gather_s(network.path(work.group("tp")), size, plan.tp)
    return 2 * plan.virtual_stages * each


@dataclass(frozen=True, slots=True)
class _States:
    """Parameters of one kind that a rank holds before ZeRO, and the ways to those who share or copy their states."""

    parameters: float
    spread: Spread
    sharing: Path
    copying: Path


def _states(work: Workload, network: Network, counts: Sequence[tuple[int, int]]) -> tuple[_States, ...]:
    """Of the pipeline rank with most: the dense part and, where there are some, experts."""
    ranks = {0, work.plan.pp // 2, work.plan.pp - 1}
    held = max((rank_parameters(work.architecture, work.plan, counts, rank) for rank in ranks), key=sum)
    found = []
    for experts, parameters, spread in zip((False, True), held, spreads(work.plan), strict=True):
        if parameters:
            sharing, copying = (network.path(group) for group in work.state_groups(experts=experts))
            found.append(_States(parameters, spread, sharing, copying))
    return tuple(found)


def rank_parameters(
    model: Architecture, plan: ParallelismSpec, counts: Sequence[tuple[int, int]], rank: int
) -> tuple[float, float]:
    """(of the dense part, of experts) that a pipeline rank holds after tp and ep. Norms and biases are left out."""
    stages = stages_of(plan, rank)
    plain, with_experts = (sum(counts[s][kind] for s in stages) for kind in (0, 1))
    dense = (plain + with_experts) * model.attention_parameters
    dense += plain * model.matrices * model.hidden * model.ffn_hidden
    embeds, predicts = 0 in stages, plan.stages - 1 in stages
    tables = embeds + predicts - (model.tied and embeds and predicts)
    dense += tables * model.vocab_size * model.hidden
    experts = 0.0
    if model.moe is not None:
        inner = model.matrices * model.hidden * (model.moe.ffn_hidden or model.ffn_hidden)
        experts = with_experts * inner * model.moe.experts / plan.ep
        dense += with_experts * inner * model.moe.shared_experts
    return dense / plan.tp, experts


def _replicas(
    work: Workload, device: Accelerator, states: Sequence[_States], microbatch: LayerSeconds
) -> dict[str, float]:
    """Exposed seconds of sums of gradients (`dp`) and of ZeRO's gathers and scatters (`shard`).

    Gradients are summed behind the backward pass of the last micro-batch, ZeRO 3 gathers and scatters behind every
    pass (Rajbhandari et al. 2020, section 7; Zhao et al. 2023, section 3.3). A pipeline gathers once a step.
    """
    if all(kind.spread.shards * kind.spread.replicas == 1 for kind in states):
        return {}
    plan, stack = work.plan, work.stack
    backward = microbatch.backward + microbatch.again if stack.hides_dp else 0.0
    forward = microbatch.forward if stack.hides_dp else 0.0
    across = sum(
        all_reduce_s(k.copying, k.parameters * stack.reduced / k.spread.shards, k.spread.replicas)
        for k in states
    )
    if not plan.zero:
        return {"dp": exposed_s(device, across, backward)}
    found = {"shard": _sharing(work, device, states, forward, backward)}
    return found | {"dp": scatters(plan) * across} if across else found


def _sharing(
    work: Workload, device: Accelerator, states: Sequence[_States], forward: float, backward: float
) -> float:
    """Exposed seconds of ZeRO's gathers and scatters behind passes of so many seconds of a micro-batch."""
    plan, stack = work.plan, work.stack
    held = sum(kind.parameters for kind in states)
    gather, scatter = (
        sum(gather_s(kind.sharing, kind.parameters * size, kind.spread.shards) for kind in states)
        for size in (stack.gathered, stack.reduced)
    )
    # FSDP2 copies what it gathered out of one buffer, and gradients into another (Zhao et al. 2023, section 4.2).
    copied = stream_s(device, 2 * held * stack.gathered)
    joined = stream_s(device, held * (stack.gathered + stack.reduced))
    if plan.pp > 1 or plan.zero < 3:
        found = copied + exposed_s(device, gather, forward)
        return found + scatters(plan) * (joined + exposed_s(device, scatter, backward))
    regathers = 0 if plan.reshard_after_forward is False else 1
    once = (1 + regathers) * copied + exposed_s(device, gather, forward)
    once += joined + exposed_s(device, regathers * gather + scatter, backward)
    return plan.microbatches * once
