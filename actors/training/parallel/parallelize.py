"""From a job's spec to the part of the model that this rank trains: the mechanisms, in the one order that works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from actors.training.compilation import compile_blocks
from actors.training.fp8 import install_fp8
from actors.training.interchange.failure import InterchangeError
from actors.training.interchange.weights import load_weights
from actors.training.loss import TokenLoss
from actors.training.model.decoder import Decoder
from actors.training.model.document_attention import mask_documents
from actors.training.model.imported import ImportedModel
from actors.training.model.initialization import initialize
from actors.training.model.part import Part
from actors.training.offload.activations import activation_pool, install_activation_offload
from actors.training.parallel.context import apply_context_parallel, positions_of
from actors.training.parallel.data_parallel import GradientReducer
from actors.training.parallel.execution import Accumulation, Execution
from actors.training.parallel.expert import apply_expert_parallel
from actors.training.parallel.layout import ParameterLayout, Span
from actors.training.parallel.mesh import RankMesh
from actors.training.parallel.pipeline import Pipeline, Shapes
from actors.training.parallel.sharding import shard_states
from actors.training.parallel.tensor import apply_tensor_parallel
from actors.training.parallel.tensor_plan import apply_tensor_plan, resolve_plan
from actors.training.precision import (
    begin_residual_stream_in,
    gradient_dtype,
    install_autocast,
    keep_gradients_in,
    mixed_precision,
    parameter_dtype,
    product_dtype,
)
from actors.training.recompute import install_recompute
from orchestrator.estimate.flops import flops_per_token
from orchestrator.estimate.stages import split_blocks, split_layers, stages_of
from orchestrator.spec import JobSpec
from orchestrator.spec.sections import Precision


@dataclass(frozen=True)
class Parallelized:
    parts: tuple[nn.Module, ...]
    """This rank's stages and shards of them; parameter names are the whole model's."""
    named: list[tuple[str, nn.Parameter]]
    trainable: list[tuple[str, nn.Parameter]]
    """Those of `named` that are not frozen: they have gradients and optimizer states."""
    layouts: dict[str, ParameterLayout]
    execution: Execution
    reducers: list[GradientReducer]
    """One for each kind of parameter that several ranks hold copies of; none with ZeRO, which sums by itself."""
    flops_per_token: float
    """Model FLOPs of a training step."""


@dataclass(frozen=True)
class _Built:
    """A model's parts before they are wrapped, and what is known of it."""

    parts: tuple[Part, ...]
    shapes: Shapes
    vocabulary: Span | None
    """This rank's share of the logits; None: all of them."""
    flops_per_token: float
    fill: Callable[[Part], None]
    """Brings a part whose parameters are final to the device, with values."""


def parallelize(
    spec: JobSpec,
    mesh: RankMesh,
    device: torch.device,
    *,
    loss_scale: Callable[[], float],
    document_end: int | None = None,
) -> Parallelized:
    """`document_end`: the token that ends a document; attention then stays inside documents."""
    plan, training = spec.parallelism, spec.training
    layouts: dict[str, ParameterLayout] = {}
    # 1. The rank's parts, cut by experts and tp before anything looks at parameters: both replace them by shards.
    if spec.model.imported:
        built = _imported_parts(spec, mesh, device, layouts)
    else:
        built = _decoder_parts(spec, mesh, device, layouts, loss_scale=loss_scale, document_end=document_end)
    waiting = activation_pool(training.offload, device)
    for part in built.parts:
        # 2. Innermost, the blocks' own computation.
        if training.precision is Precision.FP8:
            install_fp8(part, device)
        if training.compile:
            compile_blocks(part)
        # 3. Inside what ZeRO wraps, so that a recomputed block finds its parameters gathered.
        install_recompute(part, training.recompute)
        if waiting is not None:  # outside of recompute, inside of ZeRO: parameters are known as they are then
            install_activation_offload(part, waiting)
        # 4. Number formats around the whole forward, collectives of tp included.
        install_autocast(part.module, training.precision, device)
        begin_residual_stream_in(parameter_dtype(training.precision), part.module)
        # 5. ZeRO on the final parameters.
        shard_states(part, layouts, mesh, mixed=mixed_precision(training))
        # 6. Memory and values, now that each rank knows what it holds.
        built.fill(part)
    parts = tuple(part.module for part in built.parts)
    named = [(name, p) for part in parts for name, p in part.named_parameters()]
    # 7. The format of gradients, before the sums over replicas look at them.
    gradients = gradient_dtype(training)
    trainable = [(name, p) for name, p in named if p.requires_grad]
    keep_gradients_in(gradients, (p for _, p in trainable))
    return Parallelized(
        parts,
        named,
        trainable,
        layouts,
        _execution(spec, parts, mesh, device, loss_scale, built),
        [] if plan.zero else _reducers(trainable, layouts, mesh, gradients),
        built.flops_per_token,
    )


def _decoder_parts(
    spec: JobSpec,
    mesh: RankMesh,
    device: torch.device,
    layouts: dict[str, ParameterLayout],
    *,
    loss_scale: Callable[[], float],
    document_end: int | None,
) -> _Built:
    plan, training = spec.parallelism, spec.training
    dtype = parameter_dtype(training.precision)
    positions = positions_of(training.sequence_length, cp=plan.cp, index=mesh.coordinates["cp"])
    parts = build_parts(spec, mesh, dtype)
    for part in parts:
        layouts |= _whole(part)
        apply_expert_parallel(
            part,
            layouts,
            mesh,
            positions=training.sequence_length,
            auxiliary_weight=_auxiliary_weight(spec),
            loss_scale=loss_scale,
        )
        apply_tensor_parallel(
            part, layouts, mesh.group("tp"), sequence=plan.sequence, compiled=training.compile
        )
        # Attention over the positions of all cp ranks.
        apply_context_parallel(
            part, mesh.group("cp"), method=plan.context, positions=training.sequence_length
        )
        if document_end is not None:
            mask_documents(part, end=document_end)

    def fill(part: Part) -> None:
        decoder = part.module
        assert isinstance(decoder, Decoder)
        decoder.to_empty(device=device)
        decoder.tie()
        decoder.refill_buffers(device, dtype, positions)
        if spec.model.weights is None:
            initialize(decoder, layouts, seed=training.seed)
        else:
            try:
                load_weights(decoder, layouts, Path(spec.model.weights), vocab_size=spec.data.vocab_size)
            except InterchangeError as error:
                raise ValueError(f"model.weights: {error}") from None

    vocabulary = Span(spec.data.vocab_size, plan.tp, mesh.coordinates["tp"])
    split = plan.tp if plan.sequence else 1
    tokens = _tokens(spec, training.sequence_length)
    return _Built(
        tuple(Part(part, {int(i): layer for i, layer in part.layers.items()}) for part in parts),
        Shapes(
            tokens=tokens,
            hidden=tokens.new_empty((len(tokens), len(positions) // split, spec.model.hidden), dtype=dtype),
            logits=tokens.new_empty(
                (len(tokens), len(positions), vocabulary.length), dtype=product_dtype(training.precision)
            ),
        ),
        vocabulary if plan.tp > 1 else None,
        flops_per_token(spec.model, vocab_size=spec.data.vocab_size, positions=training.sequence_length),
        fill,
    )


def _imported_parts(
    spec: JobSpec, mesh: RankMesh, device: torch.device, layouts: dict[str, ParameterLayout]
) -> _Built:
    """Parts of a user's module, which have their values already."""
    plan, training, vocab_size = spec.parallelism, spec.training, spec.data.vocab_size
    dtype = parameter_dtype(training.precision)
    tokens = _tokens(spec, training.sequence_length)
    model = ImportedModel(spec.model, seed=training.seed, dtype=dtype, tokens=tokens, vocab_size=vocab_size)
    _agree(model.digest, device)
    if plan.zero or plan.stages > 1:
        model.refuse_shared(stages=plan.stages > 1)
    splits = resolve_plan(model.module, spec.model.tp_plan) if plan.tp > 1 else {}
    hidden = tokens
    if plan.stages == 1:
        parts = {0: model.whole()}
    else:
        assert model.hidden is not None
        hidden = model.hidden.to(dtype)
        ranges = split_blocks(*model.sizes(), plan)
        last = plan.stages - 1
        parts = {
            stage: model.stage(ranges[stage], embeds=stage == 0, predicts=stage == last, dtype=dtype)
            for stage in stages_of(plan, mesh.coordinates["pp"])
        }
    vocabulary = None
    for stage, part in parts.items():
        layouts |= _whole(part.module)
        if plan.tp > 1:
            predicts = stage == plan.stages - 1
            cut = apply_tensor_plan(
                part.module,
                layouts,
                mesh.group("tp"),
                splits,
                example=tokens if stage == 0 else hidden.clone().requires_grad_(),
                vocab_size=vocab_size if predicts else None,
            )
            if cut:
                vocabulary = Span(vocab_size, plan.tp, mesh.coordinates["tp"])
    logits = (*tokens.shape, vocab_size if vocabulary is None else vocabulary.length)
    return _Built(
        tuple(parts.values()),
        Shapes(tokens=tokens, hidden=hidden, logits=tokens.new_empty(logits, dtype=dtype)),
        vocabulary,
        model.flops_per_token,
        lambda part: _to_device(part, device),
    )


def _to_device(part: Part, device: torch.device) -> None:
    part.module.to(device)


def _agree(digest: int, device: torch.device) -> None:
    """ValueError on every rank when they did not build the same module: each would train another model."""
    extremes = torch.tensor((digest, -digest), device=device)
    dist.all_reduce(extremes, dist.ReduceOp.MAX)
    largest, smallest = extremes.tolist()
    if largest != -smallest:
        raise ValueError(
            "model.import: ranks built different modules; its code must be the same on every node, and its values must "
            "follow from model.options and torch's generator alone"
        )


def _tokens(spec: JobSpec, positions: int) -> Tensor:
    """Ids of a micro-batch, on the meta device."""
    plan = spec.parallelism
    microbatch = spec.training.global_batch // (plan.dp * plan.microbatches)
    return torch.empty(microbatch, positions, dtype=torch.long, device="meta")


def _whole(module: nn.Module) -> dict[str, ParameterLayout]:
    return {name: ParameterLayout(tuple(p.shape)) for name, p in module.named_parameters()}


def build_parts(spec: JobSpec, mesh: RankMesh, dtype: torch.dtype) -> tuple[Decoder, ...]:
    """This rank's stages on the meta device: a part of a large model must not need memory for the whole of it."""
    plan = spec.parallelism
    layers = split_layers(spec.model, plan, vocab_size=spec.data.vocab_size)
    with torch.device("meta"):
        return tuple(
            Decoder(
                spec.model,
                vocab_size=spec.data.vocab_size,
                positions=spec.training.sequence_length,
                layers=layers[stage],
                embeds=stage == 0,
                predicts=stage == plan.stages - 1,
            ).to(dtype)
            for stage in stages_of(plan, mesh.coordinates["pp"])
        )


def _auxiliary_weight(spec: JobSpec) -> float:
    """Weight of one sequence's auxiliary loss: they add up to the mean over the step's sequences."""
    moe = spec.model.moe
    return moe.balance_rate / spec.training.global_batch if moe is not None and moe.balance == "loss" else 0.0


def _reducers(
    named: list[tuple[str, nn.Parameter]],
    layouts: dict[str, ParameterLayout],
    mesh: RankMesh,
    dtype: torch.dtype,
) -> list[GradientReducer]:
    reducers = []
    times = mesh.parallelism.microbatches
    for expert in (False, True):
        parameters = [p for name, p in named if layouts[name].expert is expert]
        if parameters and mesh.view(expert).size("replicate") > 1:
            group = mesh.view(expert).group("replicate")
            reducer = GradientReducer(
                parameters,
                group,
                dtype=dtype,
                accumulations=times,
                bucket_bytes=mesh.parallelism.bucket_bytes,
            )
            reducers.append(reducer)
    return reducers


def _execution(
    spec: JobSpec,
    parts: tuple[nn.Module, ...],
    mesh: RankMesh,
    device: torch.device,
    loss_scale: Callable[[], float],
    built: _Built,
) -> Execution:
    plan, training = spec.parallelism, spec.training
    loss = TokenLoss(
        tokens=training.global_batch * training.sequence_length,
        span=built.vocabulary,
        group=None if built.vocabulary is None else mesh.group("tp"),
        scale=loss_scale,
    )
    if plan.stages == 1:
        return Accumulation(parts[0], loss=loss, plan=plan)
    return Pipeline(parts, mesh, loss=loss, shapes=built.shapes, device=device)
