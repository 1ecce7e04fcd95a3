"""What a source gives: a fabric, and what in its file a person should know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.topology.fabric import Fabric

MAX_NODES = 200_000
"""Nodes of one fabric; the largest clusters have a tenth."""
LISTED = 8
"""Names that a sentence lists before it goes on with a count."""


class InvalidFabricError(ValueError):
    """A fabric file that cannot be taken; `problems` and the message have every violation."""

    def __init__(self, origin: str, problems: list[str]) -> None:
        self.origin = origin
        self.problems = problems
        super().__init__(f"{origin}: " + "; ".join(problems))


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that is missing, contradicts or cannot be told, and what follows from it."""

    file: str
    line: int | None
    """First line it is seen in, counted from 1; None: the file as a whole."""
    message: str


@dataclass(frozen=True, slots=True)
class Reading:
    """One file (or several that belong together), read."""

    format: str
    """Name of the format, for people."""
    fabric: Fabric
    problems: tuple[Problem, ...] = ()
    inventory: bool = False
    """The file lists the nodes that are there: a node that it does not list is absent."""
    inside: bool = False
    """The file describes the inside of one node and does not name the node."""
    facts: Mapping[str, int] = field(default_factory=dict)
    """Counts that the fabric has no place for: switches, adapters."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def listed(names: list[str]) -> str:
    """`a, b and 3 more`."""
    shown = [shortened(name) for name in names[:LISTED]]
    more = len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more} more"
    return ", ".join(shown)


def shortened(text: str, limit: int = 80) -> str:
    """`text` short enough for a sentence, in one line of visible characters."""
    clean = "".join(c if c.isprintable() else "�" for c in text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
