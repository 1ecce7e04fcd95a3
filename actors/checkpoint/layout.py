"""Names inside a checkpoint directory, and what to keep of them. Pure: names in, names out.

- `.attempt-{attempt}-step-{n}`: being written; nobody but the attempt that made it looks inside.
- `step-{n:08d}` or `step-{n:08d}-{sequence}`: committed; the sequence (2, 3, ...) parts several of one step.
- `.pruned-{name}`: on its way out.
- `.fence-{attempt}`: an empty file; attempts older than it commit nothing any more. Ranks on a node that was cut off
  may write on for minutes, and theirs is not the attempt that the job is on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

MANIFEST_NAME = "manifest.json"
ATTEMPT_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_COMMITTED = re.compile(r"step-(\d{8,})(?:-(\d+))?")
_WRITING = re.compile(r"\.attempt-(.+)-step-(\d+)")
_PRUNED_PREFIX = ".pruned-"
_FENCE_PREFIX = ".fence-"


def writing_name(attempt: str, step: int) -> str:
    """The directory that `attempt` writes step `step` into before it is committed."""
    return f".attempt-{attempt}-step-{step}"


def pruned_name(name: str) -> str:
    """What a committed checkpoint is renamed to before removal, so that a half-removed one is never read."""
    return _PRUNED_PREFIX + name


def aside_name(leftover: str) -> str:
    """The same for something of `leftovers`, which may be on its way out already."""
    return leftover if leftover.startswith(_PRUNED_PREFIX) else pruned_name(leftover)


def parse_committed(name: str) -> tuple[int, int] | None:
    """(step, sequence) of a committed checkpoint's name, None for every other name."""
    match = _COMMITTED.fullmatch(name)
    return (int(match[1]), int(match[2] or 1)) if match else None


def newest_first(names: Iterable[str]) -> list[str]:
    """The committed checkpoints among `names`, newest first."""
    keyed = [(key, name) for name in names if (key := parse_committed(name)) is not None]
    return [name for _, name in sorted(keyed, reverse=True)]


def free_name(names: Collection[str], step: int) -> str:
    """A name for a new checkpoint of `step` that orders after every one of that step and overwrites none."""
    taken = [key[1] for name in names if (key := parse_committed(name)) is not None and key[0] == step]
    return f"step-{step:08d}" if not taken else f"step-{step:08d}-{max(taken) + 1}"


def attempt_order(attempt: str) -> tuple[int, ...]:
    """The numbers in an attempt's string: `2-7` comes after `2-6` and before `3-1`."""
    return tuple(int(digits) for digits in re.findall(r"\d+", attempt))


def fence_name(attempt: str) -> str:
    """The file that fences off every attempt before `attempt`."""
    return _FENCE_PREFIX + attempt


def fenced_by(names: Iterable[str], attempt: str) -> str | None:
    """The newest attempt that fences `attempt` off; None while it is the newest itself."""
    mine = attempt_order(attempt)
    newer = [found for found in _fences(names) if attempt_order(found) > mine]
    return max(newer, key=attempt_order, default=None)


def older_fences(names: Iterable[str], attempt: str) -> list[str]:
    """Files that the fence of `attempt` makes needless."""
    mine = attempt_order(attempt)
    return [fence_name(found) for found in _fences(names) if attempt_order(found) < mine]


def _fences(names: Iterable[str]) -> list[str]:
    return [name.removeprefix(_FENCE_PREFIX) for name in names if name.startswith(_FENCE_PREFIX)]


def leftovers(names: Iterable[str], attempt: str) -> list[str]:
    """What earlier attempts, and `attempt` itself, left unfinished; a newer attempt's work is not touched."""
    mine = attempt_order(attempt)
    return [
        name
        for name in names
        if name.startswith(_PRUNED_PREFIX)
        or ((match := _WRITING.fullmatch(name)) is not None and attempt_order(match[1]) <= mine)
    ]


def superfluous(
    names: Iterable[str],
    *,
    committed: str,
    damaged: Collection[str],
    keep: int,
    protected: Collection[int] = (),
) -> list[str]:
    """The checkpoints to remove once `committed` is in place, so that `keep` good ones stay.

    `committed` always stays, even when damaged or foreign ones carry a higher step. Damaged ones do not
    count, and go only when `keep` good ones exist. Those of the steps `protected` stay beside them.
    """
    everything = newest_first(names)
    good = [committed] + [name for name in everything if name not in damaged and name != committed]
    if len(good) < keep:
        return []
    kept = set(good[:keep])
    kept |= {
        name for name in everything if (key := parse_committed(name)) is not None and key[0] in protected
    }
    return [name for name in everything if name not in kept]
