"""What a document may hold before its fields are looked at: JSON values, finite, storable, bounded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from orchestrator.spec.violations import Violation

MAX_DEPTH = 16
MAX_VALUES = 5_000
"""Values of one document with every alias followed: a bound on alias bombs."""
MAX_TEXT = 4_096
_MAX_DIGITS = 40
_SHOWN = 120


class Values:
    """A clean copy of a document, and the violations of the values that were left out of it."""

    def __init__(self, document: Any, *, max_values: int = MAX_VALUES) -> None:
        self.violations: list[Violation] = []
        self._left = max_values
        self.too_many = False
        """The walk was given up after `max_values` values; `clean` is a part."""
        self.clean: Any = self._copy(document, "", 0)

    def refused(self, path: str) -> bool:
        """Whether a violation was already found at `path`, so that `missing` there says nothing new."""
        return any(violation.field == path for violation in self.violations)

    def _copy(self, value: Any, path: str, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            self.too_many = True
            return _DROPPED
        if depth > MAX_DEPTH:
            return self._refuse(path, None, f"is nested deeper than {MAX_DEPTH} levels; no job file is")
        if isinstance(value, Mapping):
            return self._copy_mapping(value, path, depth)
        if isinstance(value, list | tuple):
            items = (
                self._copy(item, f"{path}.{i}" if path else str(i), depth + 1) for i, item in enumerate(value)
            )
            return [item for item in items if item is not _DROPPED]
        return self._copy_scalar(value, path)

    def _copy_mapping(self, value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str) or not _storable(key) or len(key) > MAX_TEXT:
                self._refuse(path, shown(key), f"has the key {described(key)}; keys are plain text")
                continue
            copied = self._copy(item, f"{path}.{key}" if path else key, depth + 1)
            if self._left < 0:
                break
            if copied is not _DROPPED:
                found[key] = copied
        return found

    def _copy_scalar(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            if abs(value) >= 10**_MAX_DIGITS:
                return self._refuse(
                    path, f"a number of more than {_MAX_DIGITS} digits", "is too large a number"
                )
            return value
        if isinstance(value, float):
            if not math.isfinite(value):
                return self._refuse(path, str(value), f"must be a finite number, not {value}")
            return value
        if isinstance(value, str):
            if len(value) > MAX_TEXT:
                return self._refuse(path, shown(value), f"is longer than {MAX_TEXT} characters")
            if not _storable(value):
                return self._refuse(path, None, "must be text without control characters or broken Unicode")
            return value
        return self._refuse(path, None, f"must be a value that JSON has, not {described(value)}")

    def _refuse(self, path: str, value: Any, message: str) -> Any:
        self.violations.append(Violation(path, value, message))
        return _DROPPED


_DROPPED = object()


def _storable(text: str) -> bool:
    """No NUL and no lone surrogate (PostgreSQL and JSON take neither), no control characters but tab and newline."""
    return not any((c < " " and c not in "\t\n\r") or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in text)


def shown(value: Any) -> Any:
    """A value short enough for an answer: scalars as they are, long text cut, anything else left out."""
    if isinstance(value, str):
        text = value.encode("utf-8", "replace").decode().replace("\x00", "?")
        return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return value if isinstance(value, int | float) else None


def described(value: Any) -> str:
    """What kind of thing a value is, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return f'the text "{shown(value)}"' if value else "an empty text"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, Mapping):
        return "a mapping"
    return f"a {type(value).__name__}"
