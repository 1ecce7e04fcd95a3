"""Reading a job file: YAML or JSON, from a path or from standard input, checked before anything is sent."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from atoll.errors import AtollError
from orchestrator.spec import InvalidSpecError, Violation, parse_spec
from orchestrator.spec.document import MAX_CHARACTERS, read_document

MAX_BYTES = 4 * MAX_CHARACTERS
"""A character of UTF-8 has at most 4 bytes."""


class JobFileError(AtollError):
    """A job file that cannot be taken, with every violation and, where known, the line of each."""

    def __init__(
        self, message: str, violations: Sequence[Violation] = (), root: yaml.Node | None = None
    ) -> None:
        super().__init__(message)
        self.violations = tuple(violations)
        self._root = root

    def line_of(self, field: str) -> int | None:
        return line_of(self._root, field)


def read_job(path: str) -> dict[str, Any]:
    """The checked job as JSON-compatible values holding what the file sets. JobFileError says all that is wrong."""
    name, text = read_text(path)
    try:
        document = read_document(text, origin=name)
    except InvalidSpecError as error:
        raise JobFileError(error.violations[0].message) from None
    try:
        spec = parse_spec(document)
    except InvalidSpecError as error:
        count = len(error.violations)
        noun = "violation" if count == 1 else "violations"
        message = f"{name} is no valid job: {count} {noun}"
        raise JobFileError(message, error.violations, composed(text)) from None
    return spec.model_dump(mode="json", exclude_unset=True)


def read_text(path: str) -> tuple[str, str]:
    """(name for messages, text); `-` is standard input."""
    if not path:
        raise JobFileError("FILE is empty: give the path of a job file, or - for standard input")
    name = "standard input" if path == "-" else path
    try:
        if path == "-":
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as stream:
                raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise JobFileError(f"cannot read {name}: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise JobFileError(f"{name} is larger than {MAX_BYTES} bytes: that is no job file")
    try:
        return name, raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JobFileError(f"{name} is no UTF-8 text (byte {error.start}): save it as UTF-8") from None


def composed(text: str) -> yaml.Node | None:
    """The document as nodes that know their lines; None when only a reader of JSON takes it."""
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return None


def line_of(root: yaml.Node | None, field: str) -> int | None:
    """1-based line of a dotted field path, or of its nearest parent that is in the file; None when none is."""
    node, line = root, None
    for part in field.split(".") if field else []:
        found = child_at(node, part)
        if found is None:
            break
        line, node = found
    return line


def child_at(node: yaml.Node | None, part: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == part:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
        value = node.value[int(part)]
        return value.start_mark.line + 1, value
    return None
