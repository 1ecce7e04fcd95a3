"""The rules against the arithmetic of the engine, written apart from them: a plan passes exactly when it cuts evenly.

`problems` does what the engine does: deals heads, positions, rows, layers, sequences and experts out to ranks, and
looks at what each got.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from orchestrator.spec.rules import incompatibilities
from orchestrator.spec.sections import (
    ContextMethod,
    DataSpec,
    ModelSpec,
    MoeSpec,
    ParallelismSpec,
    PipelineSchedule,
    Precision,
    TrainingSpec,
)

Plan = tuple[ModelSpec, ParallelismSpec, TrainingSpec, DataSpec]


def few(*values: int) -> st.SearchStrategy[int]:
    return st.sampled_from(values)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of which about half are possible: small degrees, sizes that are often multiples of them."""
    moe = None
    if draw(st.booleans()):
        moe = MoeSpec(
            experts=draw(few(2, 4, 4, 6, 8)),
            top_k=draw(few(1, 2, 2, 3)),
            ffn_hidden=draw(st.sampled_from([None, 16, 32, 18])),
            shared_experts=draw(few(0, 1, 2)),
            dense_layers=draw(few(0, 0, 1, 4)),
        )
    heads = draw(few(4, 8, 8, 12))
    model = ModelSpec(
        layers=draw(few(3, 4, 8, 8)),
        hidden=heads * draw(few(8, 8, 6)),
        heads=heads,
        kv_heads=draw(st.sampled_from([heads, heads, heads // 2])),
        ffn_hidden=draw(few(48, 96, 50)),
        moe=moe,
    )
    dp, zero = draw(few(1, 2, 2, 4, 4)), draw(few(0, 1, 2, 3, 3))
    plan = ParallelismSpec(
        tp=draw(few(1, 1, 2, 2, 3, 4)),
        pp=draw(few(1, 1, 2, 2, 3, 4)),
        dp=dp,
        cp=draw(few(1, 1, 2, 2, 3)),
        ep=draw(few(1, 1, 2, 2, 4)) if moe else draw(few(1, 1, 1, 2)),
        context=draw(st.sampled_from(ContextMethod)),
        zero=zero,
        dp_shard=draw(st.sampled_from([None, dp, 2])) if zero else None,
        reshard_after_forward=draw(st.sampled_from([True, True, 2, False])) if zero == 3 else True,
        sequence=draw(st.sampled_from([True, True, False])),
        schedule=draw(st.sampled_from(PipelineSchedule)),
        microbatches=draw(few(1, 2, 4, 4, 5, 8)),
        virtual_stages=draw(few(1, 1, 2, 2, 3)),
    )
    training = TrainingSpec(
        steps=1,
        global_batch=draw(few(16, 32, 80, 12)),
        sequence_length=draw(few(24, 48, 96, 30)),
        precision=draw(st.sampled_from(Precision)),
    )
    data = DataSpec(tokenizer="bpe", vocab_size=draw(few(256, 257, 301)))
    return model, plan, training, data


def chunks(size: int, parts: int) -> list[int]:
    """Lengths as torch.chunk cuts them, with zeros for parts it does not make."""
    share = -(-size // parts)
    return [max(0, min(size, (i + 1) * share) - i * share) for i in range(parts)]


def equal(size: int, parts: int) -> bool:
    return size % parts == 0


def problems(case: Plan) -> Iterator[str]:
    model, plan, training, data = case
    yield from tensor_problems(model, plan, data)
    yield from sequence_problems(model, plan, training)
    yield from pipeline_problems(model, plan, training)
    yield from zero_problems(plan)
    yield from expert_problems(model, plan, training)


def tensor_problems(model: ModelSpec, plan: ParallelismSpec, data: DataSpec) -> Iterator[str]:
    inner = {
        model.ffn_hidden
        if model.moe is None or layer < model.moe.dense_layers
        else (model.moe.ffn_hidden or model.ffn_hidden) * model.moe.shared_experts
        for layer in range(model.layers)
    }
    for size in (model.heads, model.kv_heads, *inner):
        if not equal(size, plan.tp):
            yield f"{size} over tp"
    if 0 in chunks(data.vocab_size, plan.tp):
        yield "vocabulary"


def sequence_problems(model: ModelSpec, plan: ParallelismSpec, training: TrainingSpec) -> Iterator[str]:
    length = training.sequence_length
    if plan.cp > 1:
        # Head-tail chunks; each of a rank's two is cut again over its tensor ranks.
        if not equal(length, 2 * plan.cp) or (plan.sequence and not equal(length // (2 * plan.cp), plan.tp)):
            yield "positions over cp"
        if plan.context is ContextMethod.ULYSSES:
            for heads in (model.heads, model.kv_heads):
                if not equal(heads, plan.tp) or not equal(heads // plan.tp, plan.cp):
                    yield "heads over cp"
    elif plan.sequence and not equal(length, plan.tp):
        yield "positions over tp"


def pipeline_problems(model: ModelSpec, plan: ParallelismSpec, training: TrainingSpec) -> Iterator[str]:
    if not equal(training.global_batch, plan.dp) or not equal(
        training.global_batch // plan.dp, plan.microbatches
    ):
        yield "sequences"
    if plan.pp == 1:
        if plan.virtual_stages > 1:
            yield "virtual stages"
        return
    a_rank = {
        PipelineSchedule.GPIPE: (1,),
        PipelineSchedule.ONE_F_ONE_B: (1,),
        PipelineSchedule.INTERLEAVED_1F1B: (2, 3),
        PipelineSchedule.ZERO_BUBBLE: (1, 2, 3),
        PipelineSchedule.ZBV: (2,),
    }[plan.schedule]
    if training.precision is Precision.FP8 and plan.schedule in (
        PipelineSchedule.ZERO_BUBBLE,
        PipelineSchedule.ZBV,
    ):
        yield "fp8 in a split backward"
    stages = plan.virtual_stages
    if stages not in a_rank:
        yield "stages a rank"
        stages = a_rank[0]  # what it has to become
    if plan.pp * stages > model.layers:
        yield "layers"
    if plan.schedule is PipelineSchedule.ONE_F_ONE_B and plan.microbatches < plan.pp:
        yield "few micro-batches"
    if plan.schedule in (PipelineSchedule.INTERLEAVED_1F1B, PipelineSchedule.ZERO_BUBBLE):
        rounds = plan.microbatches // plan.pp
        if rounds and not equal(plan.microbatches, rounds):
            yield "rounds"


def zero_problems(plan: ParallelismSpec) -> Iterator[str]:
    if not plan.zero:
        return
    data_ranks = plan.dp_shard or plan.dp
    sharing = data_ranks * plan.cp
    if not equal(plan.dp, data_ranks):
        yield "replicas of shards"
    if sharing == 1:
        yield "nothing is sharded"
    neighbours = plan.reshard_after_forward
    if type(neighbours) is int and (
        plan.tp > 1 or plan.pp > 1 or not equal(sharing, neighbours) or sharing <= neighbours
    ):
        yield "neighbours"


def expert_problems(model: ModelSpec, plan: ParallelismSpec, training: TrainingSpec) -> Iterator[str]:
    moe = model.moe
    if moe is None:
        if plan.ep > 1:
            yield "no experts"
        return
    if moe.top_k > moe.experts or moe.dense_layers >= model.layers:
        yield "choices"
    data_ranks = (plan.dp_shard or plan.dp) if plan.zero else plan.dp
    if not equal(moe.experts, plan.ep) or not equal(data_ranks * plan.cp * plan.tp, plan.ep):
        yield "experts over ep"
    if plan.tp > 1 and not plan.sequence:
        yield "positions routed twice"
    if type(plan.reshard_after_forward) is int and plan.ep > 1:
        yield "neighbours of experts"
    # Experts multiply in bf16 beside fp8.
    sizes = {Precision.FP32: 4, Precision.BF16: 2, Precision.FP16: 2, Precision.FP8: 2}
    size = sizes.get(training.precision)
    if size is not None and any(
        columns * size % 16 for columns in (model.hidden, moe.ffn_hidden or model.ffn_hidden)
    ):
        yield "rows of the grouped product"


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
@given(plans())
def test_a_plan_passes_exactly_when_the_engine_can_cut_it(case: Plan) -> None:
    model, plan, training, data = case
    found = incompatibilities({"model": model, "parallelism": plan, "training": training, "data": data})
    wanted = list(problems(case))
    event("possible" if not wanted else f"{min(len(wanted), 3)} problems")
    assert bool(found) == bool(wanted), (found, wanted)
    assert len(found) >= len(set(wanted)), "every problem has a violation of its own"
