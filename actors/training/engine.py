"""One rank's training: its part of the model, its optimizer, its data, and what a step and an evaluation are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.stateful import Stateful

from actors.pulse import Pulse
from actors.training.data.corpus import Corpus, share_corpus, unigram_loss
from actors.training.data.order import SequenceOrder, held_back_sequences, pad_sequences
from actors.training.fp8 import require_fp8
from actors.training.loss_scale import LossScale
from actors.training.metrics.meter import StepMeter
from actors.training.nonfinite import NonFinite, Skips, find_nonfinite
from actors.training.offload.optimizer import build_optimizer
from actors.training.optimizer import learning_rate
from actors.training.parallel.balance import ExpertBalance, ExpertLoad
from actors.training.parallel.clip import StepTotals, add_up_step, scale_gradients
from actors.training.parallel.context import positions_of
from actors.training.parallel.mesh import RankMesh, build_mesh
from actors.training.parallel.parallelize import parallelize
from actors.training.parallel.tensor import reduce_partial_gradients
from actors.training.parallel.timeline import StepTimelines
from actors.training.seeds import seed_step
from actors.training.state import training_state
from orchestrator.spec import JobSpec
from orchestrator.spec.sections import Precision

LARGEST_EXPONENT = 700.0
"""exp of more overflows a double (at 709.8)."""


@dataclass(frozen=True)
class StepResult:
    """The same on every rank, but for `loads`."""

    loss: float
    grad_norm: float
    """Before clipping; infinite or NaN in a step that changed nothing."""
    learning_rate: float
    stop: bool
    """Some rank was asked to stop."""
    updated: bool = True
    """False: the step changed no weight, because of an fp16 overflow or of what `nonfinite` says."""
    nonfinite: NonFinite | None = None
    loads: Sequence[ExpertLoad] = ()
    """What experts did, in the layers of this rank's stages."""


@dataclass(frozen=True)
class Evaluation:
    loss: float
    """Mean loss per token of the held-back sequences, nats."""
    unigram_loss: float

    @property
    def perplexity(self) -> float | None:
        """exp(loss); None where a double cannot hold it."""
        return math.exp(self.loss) if self.loss < LARGEST_EXPONENT else None


class Engine:
    """Built collectively: every rank of the world constructs one, and all calls but `cursor` are collective."""

    def __init__(self, spec: JobSpec, device: torch.device, *, rank: int, pulse: Pulse | None = None) -> None:
        if spec.training.precision is Precision.FP8:
            require_fp8(device)
        self.spec = spec
        self.device = device
        self._pulse = pulse or Pulse()
        self.mesh: RankMesh = build_mesh(
            spec.parallelism, device, rank=rank, experts=spec.model.moe is not None
        )
        self._corpus: Corpus = share_corpus(
            spec.data, sequence_length=spec.training.sequence_length, rank=rank
        )
        self._order = SequenceOrder(
            self._corpus.training,
            sequence_length=spec.training.sequence_length,
            global_batch=spec.training.global_batch,
            seed=spec.training.seed,
        )
        self.loss_scale = LossScale.of(spec.training.precision)
        self.skips = Skips(spec.training.nonfinite_budget)
        built = parallelize(
            spec,
            self.mesh,
            device,
            loss_scale=self.loss_scale,
            document_end=self._corpus.end_of_document if spec.data.document_masks else None,
        )
        self.parts, self.named, self.layouts = built.parts, built.named, built.layouts
        self._trainable = built.trainable
        self._execution, self._reducers = built.execution, built.reducers
        self.timelines = StepTimelines(self._execution.recorder, self.mesh, steps=spec.training.steps)
        self.balance = ExpertBalance(self.parts, self.mesh)
        self.meter = StepMeter(
            self.parts,
            self.mesh,
            spec,
            device,
            flops_per_token=built.flops_per_token,
            pulse=self._pulse,
            recorder=self._execution.recorder,
        )
        self.optimizer = build_optimizer(self._trainable, spec.training, device, rank=rank)
        self._positions = positions_of(
            spec.training.sequence_length, cp=spec.parallelism.cp, index=self.mesh.coordinates["cp"]
        )

    def state(self) -> dict[str, Stateful]:
        """What a checkpoint holds of this rank, by its name in checkpoints."""
        buffers = self.balance.moved_buffers()
        return training_state(self.named, self.optimizer, self.layouts, self.mesh, buffers=buffers)

    def progress(self) -> dict[str, Any]:
        """What a checkpoint holds besides tensors: JSON values, the same on every rank."""
        return {
            "loss_scale": self.loss_scale.state(),
            "skipped": self.skips.state(),
            "corpus": self._corpus.identity.as_json(),
        }

    def restore_progress(self, progress: Mapping[str, Any]) -> None:
        """Takes what `progress` gave when the checkpoint was written; checkpoints of older versions lack some of it.

        ValueError when that was on other data.
        """
        if "corpus" in progress:
            self._corpus.identity.require(progress["corpus"], self.spec.data)
        if "loss_scale" in progress:
            self.loss_scale.load(progress["loss_scale"])
        if "skipped" in progress:
            self.skips.load(progress["skipped"])

    def cursor(self, step: int) -> int:
        """Global index of the next sequence after `step` finished steps."""
        return self._order.cursor(step)

    def train_step(self, step: int, *, stop: bool) -> StepResult:
        """Step `step` (0-based). `stop` is this rank's wish; the result carries the world's.

        A step whose loss or gradient is not finite changes nothing; what becomes of the job is the caller's choice.
        """
        with self.meter.step(step):
            return self._train_step(step, stop=stop)

    def _train_step(self, step: int, *, stop: bool) -> StepResult:
        training, here, dp = self.spec.training, self.mesh.coordinates, self.spec.parallelism.dp
        seed_step(training.seed, step, here["dp"], here["pp"], self.device)
        with self.meter.phase("data"):
            inputs, targets = self._order.batch(step, replica=here["dp"], replicas=dp)
            inputs, targets = self._mine(inputs), self._mine(targets)
        self.timelines.begin(step)
        with self.meter.phase("execution"):
            loss = self._execution.train(inputs, targets) / self.loss_scale()
        with self.meter.phase("optimizer"):
            totals = self._add_up(loss, stop=stop)
        rate = learning_rate(training.optimizer, step=step, steps=training.steps)
        finite = math.isfinite(totals.loss) and math.isfinite(totals.gradient_norm)
        nonfinite = None
        if finite:
            with self.meter.phase("optimizer"):
                scale_gradients(
                    [p for _, p in self.named], norm=totals.gradient_norm, max_norm=training.clip_norm
                )
                self.optimizer.step(rate)
            self.loss_scale.grow()
        elif self.loss_scale.overflowed(loss=totals.loss, gradient_norm=totals.gradient_norm):
            self.loss_scale.shrink()
        else:
            nonfinite = find_nonfinite(
                self.named,
                loss,
                totals,
                step=step,
                first_sequence=self._order.cursor(step),
                share=training.global_batch // dp,
                mesh=self.mesh,
            )
        self.optimizer.zero_grad()
        loads = self.balance.finish_step(update=finite)
        return StepResult(totals.loss, totals.gradient_norm, rate, totals.stop, finite, nonfinite, loads)

    def _add_up(self, loss: Tensor, *, stop: bool) -> StepTotals:
        """Completes the gradients; norm, loss and what else the world adds up in every step."""
        for reducer in self._reducers:
            reducer.finish()
        reduce_partial_gradients(self.named, self.layouts, self.mesh.group("tp"))
        self.loss_scale.unscale(p for _, p in self.named)
        sent = self.meter.sent_so_far()
        counted = self._counted(loss)
        totals = add_up_step(self.named, self.layouts, counted, stop=stop, mesh=self.mesh, measures=sent)
        self.meter.sent_by_all(totals.measures)
        return totals

    def leave_out(self, step: int) -> StepResult:
        """Step `step` (0-based) as one that changes nothing and reads nothing."""
        training = self.spec.training
        rate = learning_rate(training.optimizer, step=step, steps=training.steps)
        return StepResult(math.nan, math.nan, rate, stop=False, updated=False)

    def evaluate(self) -> Evaluation:
        """Loss on the held-back sequences, and that of the unigram model on the same targets."""
        training, plan = self.spec.training, self.spec.parallelism
        all_inputs, all_targets = held_back_sequences(
            self._corpus.held_back, sequence_length=training.sequence_length, at_most=training.eval_sequences
        )
        inputs, targets = pad_sequences(all_inputs, all_targets, multiple=training.global_batch)
        share = training.global_batch // plan.dp
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for part in self.parts:  # a user's module may hold dropout
            part.eval()
        for first in range(self.mesh.coordinates["dp"] * share, len(inputs), training.global_batch):
            rows = slice(first, first + share)
            total += self._execution.evaluate(self._mine(inputs[rows]), self._mine(targets[rows]))
            self._pulse.moved()
        for part in self.parts:
            part.train()
        total = self._counted(total)
        if dist.get_world_size() > 1:
            dist.all_reduce(total)
        return Evaluation(
            loss=float(total) / all_targets.numel(),
            unigram_loss=unigram_loss(self._corpus, all_targets, vocab_size=self.spec.data.vocab_size),
        )

    def _mine(self, sequences: Tensor) -> Tensor:
        """This rank's positions of (sequences, positions), on its device."""
        return sequences[:, self._positions].to(self.device)

    def _counted(self, loss: torch.Tensor) -> torch.Tensor:
        """Ranks of one tp group hold the same loss: one of them counts it."""
        return loss if self.mesh.coordinates["tp"] == 0 else torch.zeros_like(loss)
