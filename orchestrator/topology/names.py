"""Natural order of names: n2 before n10."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"(\d+)")

NaturalKey = tuple[tuple[int, int, str], ...]


def natural_key(name: str) -> NaturalKey:
    """Sort key that compares runs of digits as numbers; the text itself breaks ties (`n01` and `n1`)."""
    parts = tuple(
        (0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part)
        for part in _DIGITS.split(name)
        if part
    )
    return (*parts, (2, 0, name))
