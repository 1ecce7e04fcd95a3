"""`atoll export`: what a job has learned, as files that other programs load."""

from __future__ import annotations

import shutil
import uuid
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from atoll.cli.connection import JobReference, Json, TokenFile, Url, connect
from atoll.cli.directory import local_directory
from atoll.cli.messages import standard_error
from atoll.cli.output import print_json, standard_output
from atoll.errors import AtollError, CheckpointError
from atoll.job_checkpoint import JobCheckpoint, job_checkpoint

Step = Annotated[
    int | None,
    typer.Option("--step", min=0, help="Finished steps of the checkpoint. (default: the newest good one)"),
]


class Format(StrEnum):
    """Number formats that weights can be written in."""

    FP64 = "fp64"
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class OutputError(AtollError):
    """A directory that cannot be written."""


def export(
    job_id: JobReference,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", parser=local_directory, help="New or empty directory to write."),
    ],
    step: Step = None,
    dtype: Annotated[
        Format | None, typer.Option("--dtype", help="Number format of the weights. (default: as trained)")
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Writes a job's weights as safetensors with the config.json and tokenizer of Hugging Face transformers.

    Reads the checkpoint from shared storage, so it runs where that is mounted.
    """
    check_output(out)
    with connect(url, token_file) as client:
        found = job_checkpoint(client, job_id, step)
    warn_of_skipped(found)
    written, untold = write_directory(found, out, dtype)
    if untold is not None:
        standard_error().print(f"[yellow]warning:[/] no tokenizer written: {escape(untold)}")
    total = sum(file.stat().st_size for file in written)
    answer = {
        "job": found.job.id,
        "step": found.step,
        "directory": str(out.absolute()),
        "files": [file.name for file in written],
        "bytes": total,
        "tokenizer": untold is None,
    }
    if as_json:
        print_json(answer)
        return
    standard_output().print(
        f"{escape(found.job.name)} after step {found.step}: {len(written)} files, {total / 1e6:.1f} MB "
        f"in {escape(str(out))}"
    )


def warn_of_skipped(found: JobCheckpoint) -> None:
    for name, reason in found.skipped:
        standard_error().print(f"[yellow]warning:[/] {escape(name)} passed over: {escape(reason)}")


def check_output(out: Path) -> None:
    try:
        if out.is_dir() and not any(out.iterdir()):
            return
        if out.exists() or out.is_symlink():
            raise OutputError(f"--out {out} is there already; give a new or empty directory")
        parent = out.absolute().parent
        if not parent.is_dir():
            raise OutputError(f"--out {out}: there is no directory {parent} to make it in")
    except OSError as error:
        raise OutputError(f"--out {out} cannot be used: {error.strerror}") from None


def write_directory(found: JobCheckpoint, out: Path, dtype: Format | None) -> tuple[list[Path], str | None]:
    """Writes aside and renames: `out` is whole or not there. One that is there gets its config.json last, without
    which nothing loads it. (files, why there is no tokenizer)."""
    from safetensors import SafetensorError

    from actors.training.interchange.config import CONFIG_NAME
    from actors.training.interchange.failure import InterchangeError
    from actors.training.trained import NoGoodCheckpointError

    target = out.absolute()
    filled = target.is_dir()  # it may be a mount point: its files are then renamed inside it
    aside = (target if filled else target.parent) / f".{target.name}.{uuid.uuid4().hex[:8]}.partial"
    try:
        aside.mkdir()
        files, untold = _write(found, aside, dtype)
        if filled:
            for file in sorted(files, key=lambda file: file.name == CONFIG_NAME):
                file.rename(target / file.name)
        else:
            aside.rename(target)
    except OSError as error:
        raise OutputError(f"--out {out} cannot be written: {error.strerror or error}") from None
    except SafetensorError as error:  # its own name for a full disk and the like
        raise OutputError(f"--out {out} cannot be written: {error}") from None
    except (InterchangeError, NoGoodCheckpointError) as error:
        raise CheckpointError(str(error)) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return [out / file.name for file in files], untold


def _write(found: JobCheckpoint, directory: Path, dtype: Format | None) -> tuple[list[Path], str | None]:
    import torch

    from actors.training.interchange.export import export_model
    from actors.training.interchange.tokenizer import job_tokenizer, write_tokenizer
    from actors.training.trained import TrainedWeights

    formats = {
        Format.FP64: torch.float64,
        Format.FP32: torch.float32,
        Format.BF16: torch.bfloat16,
        Format.FP16: torch.float16,
    }
    spec = found.spec
    weights = TrainedWeights(spec, found.path)
    files = export_model(
        directory,
        spec.model,
        vocab_size=spec.data.vocab_size,
        positions=spec.training.sequence_length,
        dtype=weights.dtype if dtype is None else formats[dtype],
        source=weights.read,
    )
    try:
        tokenizer = job_tokenizer(spec.data, identity=found.tokenizer)
    except ValueError as error:
        return files, str(error)
    return files + write_tokenizer(directory, tokenizer, positions=spec.training.sequence_length), None
