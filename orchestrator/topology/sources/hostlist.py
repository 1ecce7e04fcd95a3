"""Host lists: `tux[0-3,12],gpu[001-004]`, as Slurm, pdsh and ClusterShell write them.

Several brackets in one name multiply (`r[1-2]n[1-3]`), leading zeros set the width, `[0-10:2]` and `[0-10/2]`
step, and brackets may lie in brackets (`n[1,[3-5]]`). Names are counted before any is made: `n[1-999999999]`
costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from orchestrator.topology.sources.reading import MAX_NODES, shortened

_RANGE = re.compile(r"(\d+)-(\d+)(?:[:/](\d+))?")
_SPACE = " \t\r\n"
MAX_DIGITS = 18
MAX_DEPTH = 4
MAX_BRACKETS = 8
MAX_NAME = 253
"""Characters of a host name (RFC 1123 with RFC 1035)."""


class HostListError(ValueError):
    """A text that is no host list."""


@dataclass(frozen=True, slots=True)
class _Span:
    first: int
    last: int
    step: int
    width: int

    def __len__(self) -> int:
        return (self.last - self.first) // self.step + 1

    def __iter__(self) -> Iterator[str]:
        return (f"{number:0{self.width}d}" for number in range(self.first, self.last + 1, self.step))


_Word = tuple["str | _Choice", ...]
"""Parts of one name: texts and brackets."""
_Choice = tuple["_Span | _Word", ...]
"""What stands in a bracket."""


def expand_hosts(text: str, *, limit: int = MAX_NODES) -> list[str]:
    """Every name in `text`, in the order written. HostListError says what is wrong."""
    words = _Parser(text).words()
    count = sum(_count(word) for word in words)
    if count > limit:
        raise HostListError(f"{shortened(text)!r} names {count} nodes; at most {limit} can be read")
    names = [name for word in words for name in _names(word)]
    if any(len(name) > MAX_NAME for name in names):
        raise HostListError(f"{shortened(text)!r} names a node with more than {MAX_NAME} characters")
    return names


def _count(word: _Word) -> int:
    return prod(
        sum(len(item) if isinstance(item, _Span) else _count(item) for item in part)
        for part in word
        if not isinstance(part, str)
    )


def _names(word: _Word) -> Iterator[str]:
    parts = [[part] if isinstance(part, str) else list(_chosen(part)) for part in word]
    return ("".join(chosen) for chosen in product(*parts))


def _chosen(choice: _Choice) -> Iterator[str]:
    for item in choice:
        yield from item if isinstance(item, _Span) else _names(item)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def words(self) -> list[_Word]:
        words: list[_Word] = []
        while self._at < len(self._text):
            if self._text[self._at] in "," + _SPACE:
                self._at += 1
            else:
                words.append(self._word("," + _SPACE, 0))
        return words

    def _word(self, ends: str, depth: int) -> _Word:
        """One name, up to one of `ends` outside its brackets."""
        parts: list[str | _Choice] = []
        brackets = 0
        while self._at < len(self._text) and self._text[self._at] not in ends:
            if self._text[self._at] == "[":
                brackets += 1
                if brackets > MAX_BRACKETS:
                    raise self._error(f"has more than {MAX_BRACKETS} brackets in one name")
                parts.append(self._bracket(depth + 1))
            elif self._text[self._at] == "]":
                raise self._error("closes a bracket that is not open")
            else:
                parts.append(self._literal(ends))
        return tuple(parts)

    def _literal(self, ends: str) -> str:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in ends + "[]":
            self._at += 1
        return self._text[start : self._at]

    def _bracket(self, depth: int) -> _Choice:
        if depth > MAX_DEPTH:
            raise self._error(f"has brackets nested deeper than {MAX_DEPTH}")
        self._at += 1
        items: list[_Span | _Word] = []
        while True:
            word = self._word(",]", depth)
            if self._at >= len(self._text):
                raise self._error("ends inside a bracket")
            if not word:
                raise self._error("has an empty place in a bracket")
            items.append(self._span(word[0]) if len(word) == 1 and isinstance(word[0], str) else word)
            self._at += 1
            if self._text[self._at - 1] == "]":
                return tuple(items)

    def _span(self, text: str) -> _Span | _Word:
        found = _RANGE.fullmatch(text.strip())
        if found is None:
            if not text.strip().isalnum():
                raise self._error(
                    f"has {shortened(text, 20)!r} in a bracket; a number or a range like 0-7 can stand there"
                )
            return (text.strip(),)
        first, last, step = found.groups()
        if max(len(first), len(last), len(step or "")) > MAX_DIGITS:
            raise self._error(f"has a number of more than {MAX_DIGITS} digits")
        if int(first) > int(last):
            raise self._error(
                f"has the range {first}-{last}; the first number must not be larger than the last"
            )
        if step is not None and int(step) == 0:
            raise self._error("steps by 0")
        return _Span(int(first), int(last), int(step or 1), len(first))

    def _error(self, what: str) -> HostListError:
        return HostListError(f"the host list {shortened(self._text)!r} {what}")
