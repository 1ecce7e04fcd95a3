"""The table of fields in docs/job-spec.md, from the schema: `python -m orchestrator.spec.reference docs/job-spec.md`.

Writes between two marks in the file and leaves the rest alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.spec.schema import json_schema

BEGIN = "<!-- fields: written by orchestrator.spec.reference -->"
END = "<!-- end of fields -->"

Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    path: str
    default: str
    limits: str
    meaning: str
    """From the docstring of the field, or of its section."""
    section: bool
    """Holds further fields."""


def fields() -> list[Field]:
    """Every field of a job file, in its order; those of a list's entries as `data.sources.0.path`."""
    schema = json_schema()
    return list(_fields(schema, schema["$defs"], ""))


def table() -> str:
    """The fields as a Markdown table."""
    rows = ["| field | default | limits | meaning |", "| --- | --- | --- | --- |"]
    for field in fields():
        name = f"**`{field.path}`**" if field.section else f"`{field.path}`"
        meaning = field.meaning.replace("|", "\\|").replace("<", "&lt;")
        rows.append(f"| {name} | {field.default} | {field.limits} | {meaning} |")
    return "\n".join(rows)


def with_table(text: str) -> str:
    """`text` with the table between the marks. ValueError when a mark is missing."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the file must hold the lines {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}"


def _fields(node: Node, defs: Node, prefix: str) -> Iterator[Field]:
    for name, given in node["properties"].items():
        path = f"{prefix}{name}"
        target = _target(given, defs)
        inner = "properties" in target
        entry = _target(given.get("items", {}), defs)
        yield Field(
            path,
            default=_default(given, name in node.get("required", ()), inner),
            limits="" if inner else _limits(given, defs),
            meaning=" ".join(str(given.get("description") or target.get("description", "")).split()),
            section=inner,
        )
        if inner:
            yield from _fields(target, defs, f"{path}.")
        elif "properties" in entry:
            yield from _fields(entry, defs, f"{path}.0.")


def _target(given: Node, defs: Node) -> Node:
    """The definition that a field refers to, if any."""
    for choice in (given, *given.get("anyOf", ())):
        if "$ref" in choice:
            found: Node = defs[choice["$ref"].rpartition("/")[2]]
            return found
    return {}


def _default(given: Node, required: bool, inner: bool) -> str:
    if required:
        return "required"
    value = given.get("default")
    return "" if inner and value is not None else f"`{json.dumps(value)}`"


def _limits(given: Node, defs: Node) -> str:
    """`1 to 64`, `one of ...`; of several kinds, each."""
    choices = [choice for choice in given.get("anyOf", (given,)) if choice.get("type") != "null"]
    said = [words for choice in choices if (words := _limit({**choice, **_target(choice, defs)}))]
    return " or ".join(said)


def _limit(kind: Node) -> str:
    if "enum" in kind:
        return ", ".join(f"`{value}`" for value in kind["enum"])
    if "const" in kind:
        return f"`{kind['const']}`"
    match kind.get("type"):
        case "boolean":
            return "true or false"
        case "string":
            return f"at most {kind['maxLength']} characters" if "maxLength" in kind else "text"
        case "array":
            return _list_limit(kind)
        case "object":
            return "a mapping"
        case _:
            return _range(kind)


def _list_limit(kind: Node) -> str:
    if "prefixItems" in kind:
        return f"{len(kind['prefixItems'])} numbers, {_range(kind['prefixItems'][0])} each"
    return f"a list of at most {kind['maxItems']}" if "maxItems" in kind else "a list"


def _range(kind: Node) -> str:
    if "exclusiveMinimum" in kind:
        return f"above {_number(kind['exclusiveMinimum'])}, {_upper(kind, 'at most ')}"
    joint = "to " if "maximum" in kind else "or more, "
    return f"{_number(kind['minimum'])} {joint}{_upper(kind, '')}"


def _upper(kind: Node, before: str) -> str:
    if "exclusiveMaximum" in kind:
        return f"below {_number(kind['exclusiveMaximum'])}"
    return before + _number(kind["maximum"])


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_table(page.read_text()))
