"""What is estimated: a model's shape, a plan, and what the software that runs it does and does not hide."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import gcd

from orchestrator.estimate.network import Group
from orchestrator.estimate.share import Formats
from orchestrator.placement.mesh import AXES
from orchestrator.spec.job import JobSpec
from orchestrator.spec.sections import ModelSpec, MoeSpec, ParallelismSpec, Precision


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder-only transformer as far as its cost goes."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn_hidden: int
    vocab_size: int
    gated: bool = True
    """The feed-forward has a gate: three matrices; else two."""
    dropout: bool = False
    """After attention, after its projection and after the feed-forward, as GPT has."""
    tied: bool = False
    """The head is the embedding, where both lie on one stage."""
    moe: MoeSpec | None = None

    @classmethod
    def of(cls, model: ModelSpec, vocab_size: int) -> Architecture:
        return cls(
            model.layers,
            model.hidden,
            model.heads,
            model.kv_heads,
            model.size_of_head,
            model.ffn_hidden,
            vocab_size,
            tied=model.tied_embeddings,
            moe=model.moe,
        )

    @property
    def matrices(self) -> int:
        """Of a feed-forward."""
        return 3 if self.gated else 2

    @property
    def queries(self) -> int:
        return self.heads * self.head_size

    @property
    def keys(self) -> int:
        """Of keys and values together."""
        return 2 * self.kv_heads * self.head_size

    @property
    def attention_parameters(self) -> int:
        return self.hidden * (2 * self.queries + self.keys)

    @property
    def dense_layers(self) -> int:
        """Layers without experts, the first ones."""
        return self.layers if self.moe is None else self.moe.dense_layers

    @property
    def parameters(self) -> float:
        """Of products; embedding and head as two, norms and biases left out."""
        total = self.layers * self.attention_parameters + 2.0 * self.vocab_size * self.hidden
        total += self.dense_layers * self.matrices * self.hidden * self.ffn_hidden
        if self.moe is not None:
            inner = self.moe.ffn_hidden or self.ffn_hidden
            each = self.matrices * self.hidden * inner * (self.moe.experts + self.moe.shared_experts)
            total += (self.layers - self.dense_layers) * (each + self.hidden * self.moe.experts)
        return total


class Again(StrEnum):
    """What backward computes again."""

    NOTHING = "none"
    ATTENTION = "selective"
    ELEMENTWISE = "elementwise"
    """All but products and attention."""
    LAYER = "full"
    HALF = "half"
    """Every second product and all that is no product (torchtitan's selective option `op`)."""


@dataclass(frozen=True, slots=True)
class Stack:
    """What of the cost is the software's doing."""

    name: str
    flash: bool = True
    """Attention keeps no scores."""
    fused: bool = False
    """Norms, activations and additions are one kernel each, by hand or by a compiler."""
    joined: bool = False
    """Query, key and value are one product, gate and up another."""
    residual: int = 4
    """Bytes of an element of the residual stream."""
    reduced: int = 4
    """Bytes of a gradient that replicas sum."""
    gathered: int = 2
    """Bytes of a parameter that ZeRO gathers."""
    casts: bool = False
    """Each use of a parameter begins with a copy in the short format (autocast)."""
    gathers_again: bool = False
    """Backward gathers the input of tensor regions once more instead of keeping it."""
    hides_tp: bool = False
    """Backward's tensor collectives at a region's entry run behind the gradients of weights."""
    async_tp: bool = False
    """All tensor collectives run behind the products, in pieces."""
    hides_dp: bool = True
    """Sums of gradients and gathers of parameters run behind the computation."""
    entry: int | None = None
    """Bytes of an element that tensor regions gather at their entry; None: those of the residual stream."""
    scatters_stages: bool = False
    """Between stages each tensor rank sends a part of what all hold, and they gather it on the other side."""
    masked_context: bool = False
    """Context parallelism attends under a mask tensor, which no kernel skips a half of; its ring writes its scores."""
    products: str | None = None
    """Format of the products of linear maps where it is not the job's: `fp8`."""
    casts_rows: bool = False
    """fp8 factors for each row, which take a pass of their own over both operands, each time."""


@dataclass(frozen=True, slots=True)
class Workload:
    architecture: Architecture
    plan: ParallelismSpec
    sequences: int
    """Of a step."""
    positions: int
    """Of a sequence."""
    precision: str
    again: Again
    again_every: int
    stack: Stack
    axes: tuple[str, ...] = AXES
    """Order of ranks, inner to outer."""

    @classmethod
    def of(cls, spec: JobSpec) -> Workload:
        """A job as the engine runs it. ValueError for an imported model, whose shape only its ranks know."""
        if spec.model.imported:
            raise ValueError("model.import: an imported model's cost is not known before its ranks run")
        training = spec.training
        return cls(
            Architecture.of(spec.model, spec.data.vocab_size),
            spec.parallelism,
            training.global_batch,
            training.sequence_length,
            training.precision.value,
            Again(training.recompute.mode),
            training.recompute.every,
            engine_stack(spec),
        )

    @property
    def micro_sequences(self) -> float:
        return self.sequences / (self.plan.dp * self.plan.microbatches)

    @property
    def tokens(self) -> float:
        """Of a micro-batch on one rank."""
        return self.micro_sequences * self.positions / self.plan.cp

    @property
    def step_tokens(self) -> int:
        return self.sequences * self.positions

    def stride(self, axis: str) -> int:
        """Ranks between neighbours of a group of the axis."""
        stride = 1
        for other in self.axes:
            if other == axis:
                return stride
            stride *= getattr(self.plan, other)
        raise ValueError(f"{axis} is none of {self.axes}")

    def group(self, axis: str) -> Group:
        """Ranks of a group of `tp`, `cp`, `pp`, `ep`, `shard` (who share states) or `dp` (who hold copies of them)."""
        plan = self.plan
        if axis in ("tp", "cp", "pp"):
            return ((self.stride(axis), getattr(plan, axis)),)
        if axis == "ep":
            return self._expert_group()
        sharing, replicas = self.state_groups(experts=False)
        return sharing if axis == "shard" else replicas

    def state_groups(self, *, experts: bool) -> tuple[Group, Group]:
        """(ranks that share states, ranks that hold copies of them) of dense parameters or of experts, which lie on one
        rank of each expert group alone."""
        plan, data = self.plan, self.stride("dp")
        within = self._within(plan.shards if plan.zero else plan.dp, experts=experts)
        if plan.zero:
            return within, ((data * plan.shards, plan.dp // plan.shards),)
        return ((1, 1),), within

    def _within(self, data: int, *, experts: bool) -> Group:
        """Context ranks and `data` neighbours in dp that hold the same part of the model: of experts, tensor ranks too,
        and of all of these one for each expert group."""
        if not experts:
            return ((self.stride("cp"), self.plan.cp), (self.stride("dp"), data))
        degrees = (self.plan.tp, self.plan.cp, data)
        return tuple(
            (stride * taken, max(1, degree // taken))
            for (stride, taken), degree in zip(self._expert_group(), degrees, strict=True)
        )

    def _expert_group(self) -> Group:
        """Neighbours: tensor ranks first, then context, then data ranks."""
        left, found = self.plan.ep, []
        for axis in ("tp", "cp", "dp"):
            taken = gcd(left, getattr(self.plan, axis))
            found.append((self.stride(axis), taken))
            left //= taken
        return tuple(found)


def engine_stack(spec: JobSpec) -> Stack:
    """What this engine does: separate projections, a residual stream in the format of the parameters, collectives of tp
    waited for where they stand, gradients summed behind backward, context ranks that attend under a mask."""
    formats = Formats.of(spec.training)
    short = spec.training.precision in (Precision.BF16, Precision.FP16)
    return Stack(
        "atoll",
        fused=spec.training.compile,
        residual=formats.parameter,
        reduced=formats.gradient,
        gathered=formats.gathered,
        casts=short and not spec.parallelism.zero,
        masked_context=True,
    )
