"""What goes to people on standard error, and the exit code that goes with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Protocol

from rich.console import Console
from rich.markup import escape

from atoll.cli.job_file import JobFileError
from atoll.errors import (
    AtollError,
    CheckpointError,
    ProblemError,
    ServerUnreachableError,
    StorageUnreachableError,
)

JOB_FAILED = 1
WRONG_INPUT = 2
UNREACHABLE = 3
INTERRUPTED = 130


class Flaw(Protocol):
    """A violation, from the local check or from the server."""

    @property
    def field(self) -> str: ...
    @property
    def value(self) -> object: ...
    @property
    def message(self) -> str: ...


def standard_error() -> Console:
    """`:name:` in what a user or a rank wrote stays as it is, here and on standard output."""
    return Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)


def exit_code(error: AtollError) -> int:
    """3 when the server, its cluster or its storage could not be reached or broke down, 1 when the job has not what was
    asked for, 2 for all that the user can put right."""
    if isinstance(error, ServerUnreachableError | StorageUnreachableError):
        return UNREACHABLE
    if isinstance(error, CheckpointError):
        return JOB_FAILED
    if isinstance(error, ProblemError) and error.status >= 500:
        return UNREACHABLE
    return WRONG_INPUT


def report(error: AtollError) -> None:
    """One error, with every violation on a line of its own."""
    console = standard_error()
    sentence = str(error)
    if isinstance(error, ProblemError) and error.violations:
        count = len(error.violations)
        sentence = f"the server refused the request: {count} violation{'s' if count > 1 else ''}"
    console.print(f"[bold red]error:[/] {escape(sentence)}")
    if isinstance(error, JobFileError):
        print_violations(console, error.violations, error.line_of)
    if isinstance(error, ProblemError):
        print_violations(console, error.violations, lambda field: None)
        if error.status == 401:
            console.print("give the server's token with --token-file FILE, or in ATOLL_TOKEN")


def print_violations(console: Console, flaws: Iterable[Flaw], line_of: Callable[[str], int | None]) -> None:
    for flaw in flaws:
        line = line_of(flaw.field)
        where = flaw.field or "(whole document)"
        at = f" (line {line})" if line else ""
        said = flaw.value is None or str(flaw.value) in flaw.message
        found = "" if said else f" [dim](found {escape(shortened(flaw.value))})[/]"
        console.print(f"  [bold]{escape(where)}[/]{at}: {escape(flaw.message)}{found}")


def shortened(value: object, limit: int = 80) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)  # as a job file writes it
    return text if len(text) <= limit else text[: limit - 1] + "…"
