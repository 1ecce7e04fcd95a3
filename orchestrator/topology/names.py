"""Natural order of names: n2 before n10."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"(\d+)")

NaturalKey = tuple[tuple[int, int, str], ...]


def natural_key(name: str) -> NaturalKey:
    """Sort key that compares runs of digits as numbers; `n` is before `n1`, the text breaks ties (`n01`, `n1`).

    A number is compared by its length without leading zeros, then digit by digit: names may hold runs of digits that
    Python refuses to convert.
    """
    parts = tuple(_part(part) for part in _DIGITS.split(name) if part)
    return (*parts, (-1, 0, name))


def _part(text: str) -> tuple[int, int, str]:
    if text.isdecimal() and text.isascii():
        digits = text.lstrip("0")
        return (0, len(digits), digits)
    return (1, 0, text)
