"""A file as its sources see it: text, and the YAML or JSON in it, read once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.topology.sources.documents import read_documents
from orchestrator.topology.sources.reading import InvalidFabricError, Problem

MAX_BYTES = 64 << 20
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\^_])")


@dataclass(frozen=True)
class Content:
    file: str
    """Path as the user wrote it: names the file in sentences."""
    text: str
    """Without byte order mark, carriage returns and terminal colours."""

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def documents(self) -> list[Any]:
        """YAML or JSON documents. InvalidFabricError where the text is neither."""
        return read_documents(self.text, file=self.file)

    @property
    def document(self) -> Any:
        """The first document; None where the text holds none."""
        return self.documents[0] if self.documents else None

    def refuse(self, *problems: str) -> InvalidFabricError:
        return InvalidFabricError(self.file, list(problems))

    def problem(self, line: int | None, message: str) -> Problem:
        return Problem(self.file, line, message)


def read_content(path: Path, *, file: str | None = None) -> Content:
    """The text of a file. InvalidFabricError where it cannot be read, is empty, too long or no text."""
    origin = file or str(path)
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidFabricError(origin, [f"cannot be read: {error.strerror or error}"]) from None
    return content_of(data, file=origin)


def content_of(data: bytes, *, file: str) -> Content:
    """`data` as text; see `read_content`."""
    if len(data) > MAX_BYTES:
        raise InvalidFabricError(file, [f"is longer than {MAX_BYTES >> 20} MiB"])
    try:
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidFabricError(file, [f"line {line}: is no UTF-8 text"]) from None
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise InvalidFabricError(file, ["is empty"])
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidFabricError(file, [f"line {line}: holds a NUL byte, so it is no text"])
    return Content(file, text)
