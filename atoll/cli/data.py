"""`atoll data`: what is done to data before a job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from atoll.cli.connection import Json
from atoll.cli.directory import local_directory
from atoll.cli.messages import INTERRUPTED, standard_error
from atoll.cli.output import print_json, standard_output
from atoll.errors import AtollError
from orchestrator.spec.rules.data import COMPRESSED, URL_SCHEMES
from orchestrator.spec.sections import SourceFormat

data = typer.Typer(name="data", help="Prepares data for training.", no_args_is_help=True)

SMALLEST_BPE = 256


class PrepareError(AtollError):
    """Data that cannot be prepared as asked."""


@data.callback()
def group() -> None:
    """Keeps `prepare` a verb of its own while it is the only one."""


@data.command("prepare")
def prepare(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Files: paths, or URLs (file, s3, http, https); * in the last part names several.",
        ),
    ],
    tokenizer: Annotated[
        str, typer.Option(metavar="T", help="bytes, bpe (trained on the text), or a tokenizers JSON file.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            parser=local_directory,
            help="Directory to make; every node that trains must see it.",
        ),
    ],
    workers: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Processes. (default: one for each CPU)")
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(min=SMALLEST_BPE, max=1_000_000, help="Of the tokenizer bpe.")
    ] = None,
    file_format: Annotated[
        SourceFormat, typer.Option("--format", help="What the files hold; auto tells by the name.")
    ] = SourceFormat.AUTO,
    field: Annotated[
        str, typer.Option(metavar="NAME", help="JSONL key or Parquet column with the text.")
    ] = "text",
    end_of_document: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="Ends a document, of a tokenizers file. (default: found by name)"),
    ] = None,
    on_bad_line: Annotated[
        str, typer.Option(metavar="fail|skip", help="What to do with a bad line.")
    ] = "fail",
    max_line_mb: Annotated[int, typer.Option(min=1, max=1024, help="Longest line, MiB.")] = 16,
    as_json: Json = False,
) -> None:
    """Tokenises files once, into a directory that training maps into memory.

    Run it again after it was ended: what is finished is kept. Run it on several nodes with the same arguments: they
    share the work.
    """
    from actors.training.data.crew import PreparationError
    from actors.training.data.files import SourceError
    from actors.training.data.prepare import Request
    from actors.training.data.prepare import prepare as run

    check_arguments(sources, tokenizer, vocab_size, end_of_document, on_bad_line)
    request = Request(
        sources=tuple(absolute(source) for source in sources),
        out=out.absolute(),
        tokenizer=tokenizer if tokenizer in ("bytes", "bpe") else str(Path(tokenizer).absolute()),
        vocab_size=vocab_size,
        end_of_document=end_of_document,
        format=file_format,
        text_field=field,
        skip_bad=on_bad_line == "skip",
        max_line_mb=max_line_mb,
        workers=workers or os.cpu_count() or 1,
    )
    try:
        with ProgressView() as view:
            meta = run(request, view.show)
    except (PreparationError, SourceError) as error:
        raise PrepareError(str(error)) from None
    except ValueError as error:
        raise PrepareError(f"--tokenizer: {error}") from None
    except KeyboardInterrupt:
        standard_error().print("Ended; what is finished is kept. The same command goes on.")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json({"directory": str(request.out), **meta.model_dump(mode="json")})
        return
    standard_output().print(
        escape(
            f"{request.out}: {meta.documents} documents, {meta.tokens} tokens ({meta.dtype}), "
            f"vocabulary {meta.vocab_size}"
        )
    )
    left_out = (
        (meta.skipped_lines, "bad lines left out"),
        (meta.empty_documents, "empty documents left out"),
        (meta.empty_files, "empty files"),
    )
    for count, what in left_out:
        if count:
            standard_error().print(f"{count} {what}")


class ProgressView:
    """A bar over the shards, on standard error; nothing where nobody looks."""

    def __init__(self) -> None:
        console = standard_error()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[tokens]} tokens"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("looking at the files", total=None, tokens=0)

    def __enter__(self) -> ProgressView:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def show(self, progress: object) -> None:
        from actors.training.data.crew import Progress as Step

        assert isinstance(progress, Step)
        self._progress.update(
            self._task,
            description=progress.stage,
            completed=progress.shards_done,
            total=progress.shards,
            tokens=progress.tokens,
        )


def check_arguments(
    sources: list[str],
    tokenizer: str,
    vocab_size: int | None,
    end_of_document: str | None,
    on_bad_line: str,
) -> None:
    """PrepareError with everything that is wrong with the arguments themselves."""
    wrong = []
    for source in sources:
        scheme = source.partition("://")[0] if "://" in source else ""
        if scheme and scheme not in URL_SCHEMES:
            wrong.append(
                f"SOURCE: {source!r} has the scheme {scheme}; must be one of {', '.join(URL_SCHEMES)}"
            )
        if source.endswith(COMPRESSED):
            wrong.append(f"SOURCE: {source!r} is compressed, which nothing here reads: must be a plain file")
    if tokenizer == "bpe" and vocab_size is None:
        wrong.append("--vocab-size: is required with the tokenizer bpe")
    if tokenizer != "bpe" and vocab_size is not None:
        wrong.append(f"--vocab-size: is for the tokenizer bpe; leave it out with {tokenizer}")
    if tokenizer in ("bytes", "bpe") and end_of_document is not None:
        wrong.append(f"--end-of-document: is for a tokenizers file; leave it out with {tokenizer}")
    if on_bad_line not in ("fail", "skip"):
        wrong.append(f"--on-bad-line: must be fail or skip, not {on_bad_line!r}")
    if wrong:
        raise PrepareError("; ".join(wrong))


def absolute(source: str) -> str:
    return source if "://" in source else str(Path(source).absolute())
