"""The shape of the model, and its split over tensor, context and pipeline ranks."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.spec.rules.division import must_divide
from orchestrator.spec.rules.plan import stages_asked
from orchestrator.spec.sections import ContextMethod, ModelSpec, ParallelismSpec
from orchestrator.spec.violations import Violation


def shape(model: ModelSpec) -> Iterator[Violation]:
    if model.imported:
        return
    if model.heads % model.kv_heads:
        message = f"must divide model.heads: {model.heads} heads cannot share {model.kv_heads} key-value heads evenly"
        yield Violation("model.kv_heads", model.kv_heads, message)
    yield from _head_size(model)
    scaling = model.rope_scaling
    if scaling is not None and scaling.low_frequency_factor >= scaling.high_frequency_factor:
        yield Violation(
            "model.rope_scaling.low_frequency_factor",
            scaling.low_frequency_factor,
            f"must be less than high_frequency_factor ({scaling.high_frequency_factor}), "
            f"not {scaling.low_frequency_factor}",
        )


def _head_size(model: ModelSpec) -> Iterator[Violation]:
    if model.head_size is None and model.hidden % model.heads:
        message = (
            f"must be a multiple of model.heads ({model.heads}), not {model.hidden}; or give model.head_size"
        )
        yield Violation("model.hidden", model.hidden, message)
    elif model.size_of_head % 2:
        field, value, how = (
            ("model.hidden", model.hidden, f" (hidden {model.hidden} / heads {model.heads})")
            if model.head_size is None
            else ("model.head_size", model.head_size, "")
        )
        message = f"gives heads of size {model.size_of_head}{how}; rotary positions need an even size"
        yield Violation(field, value, message)


def tensor_split(plan: ParallelismSpec, model: ModelSpec) -> Iterator[Violation]:
    if model.imported:
        return
    plain = model.moe is None or model.moe.dense_layers > 0  # some layer has the plain feed-forward
    for field in ("heads", "kv_heads", *(("ffn_hidden",) if plain else ())):
        yield from must_divide("parallelism.tp", plan.tp, f"model.{field}", getattr(model, field))


def stages(plan: ParallelismSpec, model: ModelSpec) -> Iterator[Violation]:
    """A layer at least for every stage; both ends of tied embeddings on one."""
    count = stages_asked(plan)
    if plan.layers_per_stage is not None:
        yield from _layers_by_hand(plan, model, plan.layers_per_stage)
    if model.imported:
        return
    if count > model.layers:
        how = "" if count == plan.pp else f" ({plan.pp} x {count // plan.pp} virtual stages)"
        message = f"{count} stages{how} need at least as many layers, model.layers is {model.layers}"
        yield Violation("parallelism.pp", plan.pp, message)
    if model.tied_embeddings and count > 1:
        message = (
            f"needs the embedding and the head on one stage; with {count} stages must be false "
            "(or parallelism.pp 1)"
        )
        yield Violation("model.tied_embeddings", True, message)


def _layers_by_hand(plan: ParallelismSpec, model: ModelSpec, layers: tuple[int, ...]) -> Iterator[Violation]:
    field = "parallelism.layers_per_stage"
    count = stages_asked(plan)
    if len(layers) != count:
        noun = "stage" if count == 1 else "stages"
        message = f"must name {count} {noun} (pp {plan.pp} x {count // plan.pp} a rank), not {len(layers)}"
        yield Violation(field, None, message)
    if sum(layers) != model.layers and not model.imported:
        message = f"must add up to model.layers ({model.layers}), not {sum(layers)}"
        yield Violation(field, None, message)
    if 0 in layers:
        yield Violation(field, None, f"stage {layers.index(0)} has no layer; every stage needs one")


def context_split(plan: ParallelismSpec, model: ModelSpec) -> Iterator[Violation]:
    """Ulysses deals the heads of a tensor rank over the context ranks; the other methods split positions alone."""
    if model.imported or plan.cp == 1 or plan.context is not ContextMethod.ULYSSES:
        return
    for field in ("heads", "kv_heads"):
        heads = getattr(model, field)
        if heads % (plan.tp * plan.cp):
            message = (
                f"ulysses deals model.{field} ({heads}) over tp x cp = {plan.tp} x {plan.cp} "
                "ranks, which must divide it; all-gather and ring need not"
            )
            yield Violation("parallelism.cp", plan.cp, message)
