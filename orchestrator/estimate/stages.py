"""Which layers each pipeline stage has, and which stages each pipeline rank holds."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from orchestrator.spec.sections import ModelSpec, ParallelismSpec, PipelineSchedule


def stages_of(plan: ParallelismSpec, rank: int) -> list[int]:
    """Stages that pipeline rank `rank` holds, in model order."""
    if plan.schedule is PipelineSchedule.ZBV and plan.pp > 1:
        return [rank, plan.stages - 1 - rank]
    return list(range(rank, plan.stages, plan.pp))


def rank_of(plan: ParallelismSpec, stage: int) -> int:
    """The pipeline rank that holds `stage`; the inverse of `stages_of`."""
    if plan.schedule is PipelineSchedule.ZBV and plan.pp > 1:
        return min(stage, plan.stages - 1 - stage)
    return stage % plan.pp


def split_layers(model: ModelSpec, plan: ParallelismSpec, *, vocab_size: int) -> list[range]:
    """Layers of each stage, contiguous: as the job says, or so that the largest stage is as small as can be.

    The embedding counts with the first stage and the head with the last. Every stage has a layer at least.
    """
    stages = plan.stages
    if plan.layers_per_stage is not None:
        counts = list(plan.layers_per_stage)
    elif stages > model.layers:
        raise ValueError(
            f"parallelism.pp: {stages} stages need as many layers, model.layers is {model.layers}"
        )
    else:
        table = vocab_size * model.hidden
        counts = _balanced(_weights(model), stages, ends=(table, table))
    return _contiguous(counts)


def split_blocks(costs: Sequence[int], ends: tuple[int, int], plan: ParallelismSpec) -> list[range]:
    """The same for an imported model: `costs` of its blocks, `ends` of what stands before and after them.

    ValueError for a plan that does not fit their number, which is known on the ranks alone.
    """
    stages, by_hand = plan.stages, plan.layers_per_stage
    if by_hand is not None and sum(by_hand) != len(costs):
        raise ValueError(
            f"parallelism.layers_per_stage: must add up to the {len(costs)} blocks of the imported model, "
            f"not {sum(by_hand)}"
        )
    if stages > len(costs):
        raise ValueError(
            f"parallelism.pp: {stages} stages need as many blocks, the imported model has {len(costs)}"
        )
    return _contiguous(by_hand if by_hand is not None else _balanced(costs, stages, ends=ends))


def _contiguous(counts: Sequence[int]) -> list[range]:
    """Layers of stages that have so many each."""
    stages = len(counts)
    starts = [sum(counts[:stage]) for stage in range(stages)]
    return [range(start, start + count) for start, count in zip(starts, counts, strict=True)]


def _weights(model: ModelSpec) -> list[int]:
    """Parameters that a token passes in each layer: what its time is proportional to."""
    attention = model.hidden * model.size_of_head * (2 * model.heads + 2 * model.kv_heads)
    costs = []
    for layer in range(model.layers):
        inner = model.ffn_hidden
        if model.is_moe(layer):
            assert model.moe is not None
            inner = (model.moe.ffn_hidden or inner) * (model.moe.top_k + model.moe.shared_experts)
        costs.append(attention + 3 * model.hidden * inner)
    return costs


def _balanced(costs: Sequence[int], stages: int, *, ends: tuple[int, int]) -> list[int]:
    """Numbers of layers a stage whose largest sum is least; of equals, the later stage gets more: it holds fewer
    micro-batches in flight. `ends` are added to the first and to the last stage."""
    if len(set(costs)) == 1:
        return _dealt(costs[0], len(costs), stages, ends)
    sums = [0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    n = len(costs)
    # best[s][i]: least largest stage when the last i layers fill the last s stages.
    best: list[dict[int, tuple[int, int]]] = [{0: (0, 0)}]
    for s in range(1, stages + 1):
        extra = (ends[1] if s == 1 else 0) + (ends[0] if s == stages else 0)
        row = {}
        for i in range(s, n - (stages - s) + 1):
            row[i] = min(
                (max(best[s - 1][i - take][0], sums[n - i + take] - sums[n - i] + extra), take)
                for take in range(1, i + 1)
                if i - take in best[s - 1]
            )
        best.append(row)
    counts, left = [], n
    for s in range(stages, 0, -1):
        counts.append(best[s][left][1])
        left -= counts[-1]
    return counts


def _dealt(layer: int, layers: int, stages: int, ends: tuple[int, int]) -> list[int]:
    """Layers are alike: giving the next one to the stage that would then be smallest is optimal."""
    counts, sizes = [1] * stages, [layer] * stages
    sizes[0] += ends[0]
    sizes[-1] += ends[1]
    smallest = [(size + layer, -stage) for stage, size in enumerate(sizes)]
    heapq.heapify(smallest)
    for _ in range(layers - stages):
        size, stage = heapq.heappop(smallest)
        counts[-stage] += 1
        heapq.heappush(smallest, (size + layer, stage))
    return counts
