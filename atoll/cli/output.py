"""Standard output: tables for people, JSON for programs."""

from __future__ import annotations

import json
import shutil
import sys
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from atoll.answers import JobSummary

PIPE_WIDTH = 1000
"""Characters a line may have when nobody looks: tables are then never cut."""

STATE_STYLES = {
    "queued": "yellow",
    "starting": "cyan",
    "running": "blue",
    "recovering": "bold yellow",
    "stopping": "yellow",
    "succeeded": "green",
    "failed": "bold red",
    "cancelled": "dim",
}


def standard_output() -> Console:
    """As wide as the terminal; NO_COLOR is respected by rich."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    return Console(highlight=False, emoji=False, width=width)


def print_json(value: BaseModel | dict[str, Any]) -> None:
    """One JSON document, for reading."""
    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


def print_json_line(value: BaseModel | dict[str, Any]) -> None:
    """One JSON document in one line, sent at once."""
    print(json.dumps(plain(value), ensure_ascii=False), flush=True)


def plain(value: BaseModel | dict[str, Any]) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def state_text(state: str) -> Text:
    return Text(state, style=STATE_STYLES.get(state, ""))


def step_text(job: JobSummary) -> str:
    return f"{job.step}/{job.total_steps}"


def loss_text(loss: float | None) -> str:
    return "–" if loss is None else f"{loss:.4f}"


def rate_text(tokens_per_s: float | None) -> str:
    """Tokens a second with a prefix: `12.3k tok/s`."""
    if tokens_per_s is None:
        return "–"
    for limit, divisor, prefix in ((1e3, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (float("inf"), 1e9, "G")):
        if tokens_per_s < limit:
            digits = 0 if divisor == 1 else 1
            return f"{tokens_per_s / divisor:.{digits}f}{prefix} tok/s"
    return "–"


def size_text(size_bytes: float) -> str:
    """Binary units, one digit: `900 B`, `12.5 MiB`, `75.2 GiB`; `0` for nothing."""
    if size_bytes < 1024:
        return f"{size_bytes:.0f} B" if size_bytes else "0"
    size = size_bytes / 1024
    for unit in ("KiB", "MiB"):
        if size < 1023.95:  # more would be shown as 1024.0
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"


def tokens_text(tokens: float) -> str:
    """All digits below ten million, three above: `61,440 tokens`, `300 billion tokens`."""
    if tokens < 1e7:
        return f"{tokens:,.0f} token{'' if round(tokens) == 1 else 's'}"
    for limit, scale, word in (
        (999.5e6, 1e6, "million"),
        (999.5e9, 1e9, "billion"),
        (999.5e12, 1e12, "trillion"),
    ):
        if tokens < limit:  # more would be shown as `1e+03 million`
            return f"{tokens / scale:.3g} {word} tokens"
    return f"{tokens / 1e12:,.0f} trillion tokens"


def ranks_text(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def time_text(at: datetime | None) -> str:
    """UTC, to the second."""
    return "–" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def duration_text(seconds: float) -> str:
    """`4 s`, `3 min 20 s`, `2 h 5 min`, `4 d 2 h`."""
    whole = max(0, round(seconds))
    for unit_s, unit, smaller_s, smaller in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit_s:
            return f"{whole // unit_s} {unit} {whole % unit_s // smaller_s} {smaller}"
    return f"{whole} s"


def age_text(at: datetime) -> str:
    return duration_text((datetime.now(UTC) - at).total_seconds())
