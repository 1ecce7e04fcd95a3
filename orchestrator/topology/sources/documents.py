"""YAML and JSON as plain values that know their lines.

Scalars stay text (a node may be called `0012`), but for null, true and false. Read from events, in C where libyaml is
there: a list of nodes has hundreds of thousands of values. Aliases are followed and counted, so a bomb ends early.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

import yaml

from orchestrator.topology.sources.reading import InvalidFabricError, shortened

MAX_VALUES = 2_000_000
"""Values of one file, aliases counted each time."""
MAX_DEPTH = 48
MAX_JSON = 8 << 20
"""Characters of a text that is tried as JSON when it is no YAML; almost all JSON is."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN = {
    "null": None,
    "Null": None,
    "NULL": None,
    "~": None,
    "": None,
    "true": True,
    "True": True,
    "TRUE": True,
}
_PLAIN |= {"false": False, "False": False, "FALSE": False}


class Table(dict[str, Any]):
    """A mapping; `line` is where it begins, `lines` where each key stands."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int | None = None) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}


class Rows(list[Any]):
    """A list; `line` is where it begins, `lines` where each item does."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int | None = None) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []


def read_documents(text: str, *, file: str) -> list[Any]:
    """Every document in `text`; InvalidFabricError with the line where it is neither YAML nor JSON."""
    try:
        return _Builder(file).documents(text)
    except (yaml.YAMLError, RecursionError, UnicodeError) as error:
        if text.lstrip()[:1] in ("{", "[") and len(text) <= MAX_JSON:
            return [_from_json(text, file)]
        _refuse_yaml(error, file)


def _refuse_yaml(error: Exception, file: str) -> NoReturn:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    at = f"line {mark.line + 1}: " if mark is not None else ""
    what = (
        getattr(error, "problem", None) or getattr(error, "context", None) or getattr(error, "reason", None)
    )
    raise InvalidFabricError(file, [f"{at}not valid YAML: {shortened(str(what or error))}"]) from None


def _from_json(text: str, file: str) -> Any:
    try:
        return _copied(json.loads(text, parse_int=str, parse_float=str, parse_constant=str))
    except json.JSONDecodeError as error:
        raise InvalidFabricError(file, [f"line {error.lineno}: not valid JSON: {error.msg}"]) from None
    except (RecursionError, ValueError):
        raise InvalidFabricError(file, ["nested too deeply"]) from None


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        table = Table()
        table.update((key, _copied(item)) for key, item in value.items())
        return table
    if isinstance(value, list):
        rows = Rows()
        rows.extend(_copied(item) for item in value)
        return rows
    return value


class _Builder:
    """Events -> values."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._count = 0
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._events: Iterator[Any] = iter(())

    def documents(self, text: str) -> list[Any]:
        self._events = iter(yaml.parse(text, Loader=_LOADER))
        found: list[Any] = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors = {}
                found.append(self._value(next(self._events), 0))
        return found

    def _value(self, event: Any, depth: int) -> Any:
        self._counted(1, event)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                self._refuse(event, f"the alias {shortened(str(event.anchor))!r} names nothing before it")
            value, size = self._anchors[event.anchor]
            self._counted(size, event)
            return value
        if depth > MAX_DEPTH:
            self._refuse(event, f"nested deeper than {MAX_DEPTH} levels")
        before = self._count
        if isinstance(event, yaml.ScalarEvent):
            plain = not event.style and event.implicit[0]  # None, or empty from C
            value = _PLAIN.get(event.value, event.value) if plain else event.value
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._table(event, depth)
        else:
            value = self._rows(event, depth)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._count - before)
        return value

    def _table(self, start: Any, depth: int) -> Table:
        table = Table(start.start_mark.line + 1)
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            if not isinstance(event, yaml.ScalarEvent):
                self._refuse(event, "a key must be plain text")
            if event.value in table:
                self._refuse(event, f"the key {shortened(event.value)!r} occurs twice in one mapping")
            table[event.value] = self._value(next(self._events), depth + 1)
            table.lines[event.value] = line
        return table

    def _rows(self, start: Any, depth: int) -> Rows:
        rows = Rows(start.start_mark.line + 1)
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            rows.lines.append(event.start_mark.line + 1)
            rows.append(self._value(event, depth + 1))
        return rows

    def _counted(self, more: int, event: Any) -> None:
        self._count += more
        if self._count > MAX_VALUES:
            self._refuse(event, f"more than {MAX_VALUES} values, aliases counted each time")

    def _refuse(self, event: Any, what: str) -> NoReturn:
        raise InvalidFabricError(self._file, [f"line {event.start_mark.line + 1}: {what}"])


def table_at(value: Any, *keys: str) -> Table:
    """The mapping under `keys`; an empty one where there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Table) else None
    return value if isinstance(value, Table) else Table()


def rows_at(value: Any, *keys: str) -> Rows:
    """The list under `keys`; an empty one where there is none."""
    *path, last = keys
    found = table_at(value, *path).get(last)
    return found if isinstance(found, Rows) else Rows()


def text_at(value: Any, *keys: str) -> str | None:
    """The text under `keys`; None where there is none, or an empty one."""
    *path, last = keys
    found = table_at(value, *path).get(last)
    return found if isinstance(found, str) and found else None


def number_at(value: Any, *keys: str) -> int | None:
    """The whole number under `keys`, from 0 to 10^15; None where there is none."""
    text = text_at(value, *keys)
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) <= 15 else None


def texts(value: Any) -> list[str]:
    """A text alone, or the texts of a list."""
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, Rows) else []


def line_of(value: Any, key: str | int) -> int | None:
    """Line of a key of a mapping, or of an item of a list."""
    if isinstance(value, Table) and isinstance(key, str):
        return value.lines.get(key, value.line)
    if isinstance(value, Rows) and isinstance(key, int) and key < len(value.lines):
        return value.lines[key]
    return None
