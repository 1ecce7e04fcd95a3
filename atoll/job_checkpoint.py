"""A job's checkpoint on shared storage: the job comes over REST, the files are read here.

What imports torch is imported when a checkpoint is looked for, so that other verbs start fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.answers import Checkpoint, JobDetail
from atoll.client import AtollClient
from atoll.errors import AtollError, CheckpointError, StorageUnreachableError
from orchestrator.spec import InvalidSpecError, JobSpec, parse_spec

if TYPE_CHECKING:
    from actors.training.trained import Found

SHOWN_STEPS = 8


class UnknownStepError(AtollError):
    """A step of which the job has no checkpoint."""


@dataclass(frozen=True)
class JobCheckpoint:
    job: JobDetail
    spec: JobSpec
    path: Path
    step: int
    skipped: tuple[tuple[str, str], ...]
    """(name, reason) of newer ones that are damaged."""
    tokenizer: str | None
    """Identity of the tokenizer it was trained with, if the checkpoint says so."""


def job_checkpoint(client: AtollClient, reference: str, step: int | None) -> JobCheckpoint:
    """The newest good checkpoint of the job that `reference` means, or that of `step`."""
    job = client.job(client.resolve(reference))
    try:
        spec = parse_spec(job.spec)
    except InvalidSpecError as error:
        first = error.violations[0]
        raise CheckpointError(
            f"this version does not understand the job's file ({first.field}: {first.message}); "
            "use the version that trained it"
        ) from None
    if spec.model.imported:
        raise CheckpointError(
            f"{job.name} trains a module of its own (model.import), which this command cannot run or write: it knows "
            "the decoder's families alone; torch.distributed.checkpoint reads the checkpoint, with the module's names"
        )
    known = client.checkpoints(job.id).items
    there = [one for one in known if one.state != "pruned"]
    if not there:
        raise CheckpointError(_none_yet(job, spec))
    if step is not None:
        _check_step(job, known, step)
    found = _on_storage(Path(there[0].path).parent, step)
    skipped = tuple((one.name, one.reason) for one in found.skipped)
    return JobCheckpoint(job, spec, found.path, found.step, skipped, found.tokenizer)


def _none_yet(job: JobDetail, spec: JobSpec) -> str:
    at = f"it is {job.state} at step {job.step} of {job.total_steps}"
    if job.is_terminal:
        return f"{job.name} has no checkpoint: {at}"
    every = spec.checkpoint.every
    when = f"every {every} steps and after the last" if every else "after its last step"
    return f"{job.name} has no checkpoint yet: {at} and writes one {when}"


def _check_step(job: JobDetail, known: Sequence[Checkpoint], step: int) -> None:
    of_step = [one for one in known if one.step == step]
    if any(one.state != "pruned" for one in of_step):
        return
    steps = list(dict.fromkeys(one.step for one in known if one.state != "pruned"))
    shown = ", ".join(map(str, steps[:SHOWN_STEPS])) + (" ..." if len(steps) > SHOWN_STEPS else "")
    why = "was deleted for newer ones (checkpoint.keep)" if of_step else "was never written"
    raise UnknownStepError(
        f"{job.name}: the checkpoint of step {step} {why}; there are those of steps {shown}"
    )


def _on_storage(directory: Path, step: int | None) -> Found:
    from actors.training.trained import NoGoodCheckpointError, find_checkpoint

    try:
        return find_checkpoint(directory, step=step)
    except OSError as error:
        raise StorageUnreachableError(
            f"the job's checkpoints lie in {directory}, which this machine cannot read ({error.strerror}); "
            "run this where the shared storage is mounted"
        ) from None
    except NoGoodCheckpointError as error:
        raise CheckpointError(str(error)) from None
