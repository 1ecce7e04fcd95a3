"""The rank program: builds, resumes, trains, evaluates, saves, reports.

Importing this module starts no thread and touches no device, so that a process which has imported it can be forked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.distributed as dist

from actors.training import device as devices
from actors.training.checkpoints import Checkpoints
from actors.training.context import RankContext
from actors.training.engine import Engine, StepResult
from actors.training.expert_report import ExpertReport
from actors.training.nonfinite import NonFinite, NonFiniteError
from actors.training.parallel.mesh import set_default_timeout
from orchestrator.health.standing import CHECKPOINT, STEP
from orchestrator.lifecycle.reports import EventKind
from orchestrator.spec import JobSpec


class RankOutOfMemoryError(RuntimeError):
    """An allocation failed on this rank; says in which step, and what needs less memory."""


def train(spec: JobSpec, context: RankContext) -> None:
    """Trains `spec` as rank `context.rank`; returns after the last step is saved, or after a stop was agreed.

    Raises what went wrong, with a message for people; the launcher ends the other ranks. `context.extras` may hold
    `threads` (torch threads of this process; 1 when several ranks share CPUs) and `local_index` (accelerator
    among those the process sees, default 0).
    """
    device = devices.bind(int(context.extras.get("local_index", 0)))
    threads = context.extras.get("threads", 1 if device.type == "cpu" and context.world_size > 1 else None)
    if threads is not None:
        torch.set_num_threads(int(threads))
    with _process_group(context, device):
        with _memory_named(context.rank, "while the model was built"):
            engine = Engine(spec, device, rank=context.rank, pulse=context.pulse)
        checkpoints = Checkpoints(spec, context, engine)
        step = checkpoints.resume()
        context.reporter.ready()
        TrainingRun(spec, context, engine, checkpoints).run(step)


@contextmanager
def _process_group(context: RankContext, device: torch.device) -> Iterator[None]:
    set_default_timeout(context.timeout)
    if dist.is_initialized():  # whoever launched the ranks has connected them, and will part them
        yield
        return
    dist.init_process_group(
        devices.backend(device),
        store=context.store(),
        rank=context.rank,
        world_size=context.world_size,
        timeout=context.timeout,
    )
    yield
    # Not after an error: destroying waits for peers that may be gone. The process ends instead.
    dist.destroy_process_group()


@contextmanager
def _memory_named(rank: int, when: str) -> Iterator[None]:
    """Turns a failed allocation into an error that names rank and step; everything else passes."""
    try:
        yield
    except Exception as error:
        if (cause := devices.out_of_memory(error)) is None:
            raise
        raise RankOutOfMemoryError(
            f"rank {rank}: out of memory {when}: {cause}; what needs less of it: more parallelism.microbatches, "
            "training.recompute, training.offload, parallelism.zero or tp"
        ) from error


class TrainingRun:
    """The steps of one attempt. Every rank runs the same; rank 0 reports."""

    def __init__(self, spec: JobSpec, context: RankContext, engine: Engine, checkpoints: Checkpoints) -> None:
        self._spec = spec
        self._context = context
        self._engine = engine
        self._checkpoints = checkpoints
        self._experts = ExpertReport(spec, context, engine)
        self._finished_at = time.monotonic()

    def run(self, step: int) -> None:
        """From `step` finished steps to the last, or to a stop."""
        training = self._spec.training
        self._context.pulse.began(CHECKPOINT)
        if training.on_nonfinite == "rewind":
            self._checkpoints.ensure_one(step)
        if self._checkpoints.best_may_be_unknown(step):
            self._evaluate(step)
        self._finished_at = time.monotonic()
        stopped = False
        while step < training.steps and not stopped:
            self._context.pulse.began(STEP)
            result = self._step(step)
            step += 1
            self._context.pulse.finished(step)
            stopped = result.stop
            self._checkpoints.report()
            if result.nonfinite is not None:
                self._context.pulse.began(CHECKPOINT)  # it may load one
                reached, step = step, self._go_on(result.nonfinite, step)
                if step != reached:
                    continue  # what was due after `step` has been done
            if not stopped and step < training.steps:
                self._checkpoints.keep_in_memory(step)
                if self._checkpoints.is_due(step):
                    with self._engine.meter.between_steps("checkpoint"):
                        self._checkpoints.save(step, asynchronous=self._spec.checkpoint.asynchronous)
                if training.eval_every and step % training.eval_every == 0:
                    self._evaluate(step)
        self._context.pulse.began(CHECKPOINT)
        # Saved before it is evaluated: what is finished must not be lost to what only looks at it.
        self._checkpoints.save(step, asynchronous=True)
        if not stopped:
            self._evaluate(step)
        self._context.pulse.began(CHECKPOINT)
        self._checkpoints.finish()

    def _step(self, step: int) -> StepResult:
        """Step `step` (0-based), reported."""
        engine, training = self._engine, self._spec.training
        left_out = step in engine.skips
        if left_out:
            result = engine.leave_out(step)
        else:
            with _memory_named(self._context.rank, f"in step {step + 1}"):
                result = engine.train_step(step, stop=self._context.reporter.should_stop())
            self._experts.take(step + 1, result.loads)
        now = time.monotonic()
        cost = engine.meter.record(now - self._finished_at)  # on every rank: it begins anew
        if engine.meter.measured is not None:
            self._context.phases.write(step + 1, engine.meter.measured)
        if self._context.rank == 0:
            record: dict[str, object] = {
                "step": step + 1,
                "loss": result.loss,
                "grad_norm": result.grad_norm,
                "learning_rate": result.learning_rate,
                "tokens": 0 if left_out else training.global_batch * training.sequence_length,
                "step_time_s": now - self._finished_at,
            }
            if engine.loss_scale.dynamic:
                record["loss_scale"] = engine.loss_scale.value
            if not result.updated:
                record["skipped"] = True
            record["cost"] = cost
            self._context.reporter.step(record)
        self._finished_at = now
        if not left_out:
            engine.timelines.report(self._context.reporter)
        return result

    def _go_on(self, found: NonFinite, step: int) -> int:
        """What the job file says is done about a step that is not finite: the number of finished steps to go on from.

        NonFiniteError, on every rank, when that is nothing or was done too often.
        """
        training, skips = self._spec.training, self._engine.skips
        if training.on_nonfinite == "stop" or skips.left < 1:
            self._checkpoints.settle()  # every rank is alive: what is being written need not be lost
            spent = (
                ""
                if training.on_nonfinite == "stop"
                else f"; training.nonfinite_budget ({training.nonfinite_budget}) is used up"
            )
            raise NonFiniteError(
                f"{found.sentence}{spent}; lower training.optimizer.learning_rate, add warmup_steps, or use fp32"
            )
        skips.add(found.step - 1)
        data = found.as_json() | {"budget_left": skips.left}
        if training.on_nonfinite == "skip":
            self._say(EventKind.UPDATE_SKIPPED, f"update skipped: {found.sentence}", data)
            return step
        back = self._checkpoints.rewind()
        self._say(
            EventKind.REWOUND,
            f"back to step {back}, step {found.step} will be left out: {found.sentence}",
            data | {"to_step": back},
        )
        return back

    def _evaluate(self, step: int) -> None:
        with (
            self._engine.meter.between_steps("evaluation"),
            _memory_named(self._context.rank, f"in the evaluation after step {step}"),
        ):
            evaluation = self._engine.evaluate()
        self._context.pulse.began(CHECKPOINT)  # the best is saved, and may wait for the save before
        best = self._checkpoints.consider_best(step, evaluation.loss)
        said = "" if evaluation.perplexity is None else f" (perplexity {evaluation.perplexity:.4g})"
        self._say(
            EventKind.EVALUATED,
            f"held-back loss {evaluation.loss:.4f}{said} after step {step}, "
            f"unigram model {evaluation.unigram_loss:.4f}{', the best so far' if best else ''}",
            {
                "step": step,
                "loss": evaluation.loss,
                "perplexity": evaluation.perplexity,
                "unigram_loss": evaluation.unigram_loss,
            }
            | ({"best": True} if best else {}),
        )

    def _say(self, kind: EventKind, message: str, data: Mapping[str, object]) -> None:
        if self._context.rank == 0:
            self._context.reporter.event(kind.value, message, data)
