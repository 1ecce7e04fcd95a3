"""Documents of a file, read in pieces of bounded size.

Work is cut into shards: a shard of a text or JSONL file is the lines that begin in a range of bytes, one of a Parquet
file a range of row groups. The cuts follow from the files alone, so that whoever reads gets the same pieces.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from actors.training.data.files import SourceError, SourceFile, open_file, without_secrets
from orchestrator.spec.sections import SourceFormat

SHARD_BYTES = 32 << 20
PIECE_BYTES = 1 << 20
"""A text file is tokenised in pieces of whole lines of about this size. Documents are told apart by as much."""
_LEAVE_OUT = (
    "or leave such out: data.on_bad_line: skip in a job file, --on-bad-line skip of atoll data prepare"
)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Piece(NamedTuple):
    """Part of a document."""

    text: str
    starts: bool
    ends: bool


@dataclass(frozen=True)
class Shard:
    """A part of a file that one process reads."""

    file: SourceFile
    format: SourceFormat
    start: int
    """First byte, or first row group."""
    end: int | None
    """Behind the last; None: the end of the file."""


@dataclass(frozen=True)
class ReadingRules:
    text_field: str
    """Key of JSONL objects, column of Parquet files."""
    skip_bad: bool
    max_bytes: int
    """Of a line or value."""
    field: str
    """Field of the job file or argument that named the source, for messages."""


@dataclass
class Skipped:
    """Lines left out, counted."""

    lines: int = 0
    empty_documents: int = 0
    first: str = ""
    """Where the first one lies and what is wrong with it."""

    def note(self, message: str) -> None:
        self.lines += 1
        self.first = self.first or message


def plan_shards(file: SourceFile, kind: SourceFormat, rules: ReadingRules) -> list[Shard]:
    """The shards of a file, in order; none for an empty file."""
    if file.size == 0:
        return []
    if kind is SourceFormat.PARQUET:
        return _row_group_shards(file, rules)
    if file.size is None or not file.ranges:
        return [Shard(file, kind, 0, None)]
    cuts = range(0, file.size, SHARD_BYTES)
    return [Shard(file, kind, at, None if at + SHARD_BYTES >= file.size else at + SHARD_BYTES) for at in cuts]


def read_pieces(shard: Shard, rules: ReadingRules, skipped: Skipped) -> Iterator[Piece]:
    """The pieces of a shard, in order. SourceError names file and line, or adds to `skipped` where rules say so."""
    if shard.format is SourceFormat.PARQUET:
        return _parquet_pieces(shard, rules, skipped)
    if shard.format is SourceFormat.JSONL:
        return _jsonl_pieces(shard, rules, skipped)
    return _text_pieces(shard, rules, skipped)


def document_hash(piece: str) -> int:
    """64 bits that tell which side of a split by hash a document is on: of its first MiB, the same for equal texts."""
    return int.from_bytes(hashlib.sha256(piece.encode()[:PIECE_BYTES]).digest()[:8], "little")


def _text_pieces(shard: Shard, rules: ReadingRules, skipped: Skipped) -> Iterator[Piece]:
    starts, collected, size = shard.start == 0, [], 0
    for offset, line in _lines(shard, rules):
        try:
            text = _decoded(line, rules)
        except ValueError as error:
            _bad_line(shard, offset, str(error), rules, skipped)
            continue
        collected.append(text)
        size += len(line or b"")
        if size >= PIECE_BYTES:
            yield Piece("".join(collected), starts, False)
            starts, collected, size = False, [], 0
    if collected or starts or shard.end is None:
        yield Piece("".join(collected), starts, shard.end is None)


def _jsonl_pieces(shard: Shard, rules: ReadingRules, skipped: Skipped) -> Iterator[Piece]:
    for offset, line in _lines(shard, rules):
        if line is not None and not line.strip():
            continue
        if line is not None and offset == 0:
            line = line.removeprefix(BYTE_ORDER_MARK)
        try:
            text = _json_text(_decoded(line, rules), rules)
        except ValueError as error:
            _bad_line(shard, offset, str(error), rules, skipped)
            continue
        if text:
            yield Piece(text, True, True)
        else:
            skipped.empty_documents += 1


def _json_text(line: str, rules: ReadingRules) -> str:
    """The text in one line. ValueError says what is wrong with it."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        said = error.msg.removesuffix(" at")
        raise ValueError(f"is no JSON: {said} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError:  # Python refuses to convert integers of more than 4,300 digits
        raise ValueError("holds an integer of thousands of digits") from None
    if not isinstance(value, dict):
        raise ValueError("is no JSON object; each line must be one")
    if rules.text_field not in value:
        known = ", ".join(sorted(map(str, value))[:8]) or "nothing"
        raise ValueError(f"has no field {rules.text_field!r} (it has {known}); name the one with the text")
    return _checked_text(value[rules.text_field], rules)


def _checked_text(text: Any, rules: ReadingRules) -> str:
    if not isinstance(text, str):
        raise ValueError(f"has a {rules.text_field!r} that is {type(text).__name__}, not text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(
            f"has half a surrogate pair in {rules.text_field!r}, which is no Unicode text"
        ) from None
    if size > rules.max_bytes:
        raise ValueError(_too_long(rules))
    return text


def _decoded(line: bytes | None, rules: ReadingRules) -> str:
    if line is None:
        raise ValueError(_too_long(rules))
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"is not UTF-8: byte {line[error.start]:#04x} at byte {error.start + 1} of the line; convert the file"
        ) from None


def _too_long(rules: ReadingRules) -> str:
    return f"is longer than {rules.max_bytes >> 20} MiB; break it up or allow longer ones (max_line_mb)"


def _lines(shard: Shard, rules: ReadingRules) -> Iterator[tuple[int, bytes | None]]:
    """(offset, line with its end) of the lines that begin in the shard; None for one that is too long. Memory is
    bounded by the longest line allowed."""
    # One byte before: a line begins at `start` exactly when that byte ends one.
    at = max(0, shard.start - 1)
    with open_file(shard.file, start=at, field=rules.field) as stream:
        if shard.start:
            at += _skip_line(stream)
        while shard.end is None or at < shard.end:
            line = stream.readline(rules.max_bytes + 1)
            if not line:
                _check_end(shard, at, rules)
                return
            begins, at = at, at + len(line)
            if len(line) > rules.max_bytes and not line.endswith(b"\n"):
                at += _skip_line(stream)
                yield begins, None
            else:
                yield begins, line


def _check_end(shard: Shard, at: int, rules: ReadingRules) -> None:
    """SourceError when a file ends at byte `at` that had more bytes: what is gone would be missed in silence."""
    size = shard.file.size
    if size is not None and at < size:
        raise SourceError(
            f"{rules.field}: {shard.file.path!r} was cut off while it was read: it had {size} bytes, "
            f"and nothing is left after {at}; begin again once it is whole"
        )


def _skip_line(stream: IO[bytes]) -> int:
    """Reads to the end of the line in pieces; the bytes read."""
    count = 0
    while part := stream.readline(PIECE_BYTES):
        count += len(part)
        if part.endswith(b"\n"):
            break
    return count


def _bad_line(shard: Shard, offset: int, problem: str, rules: ReadingRules, skipped: Skipped) -> None:
    """Counts the line, or refuses. Its number is found only where it is told: lines before a shard are not read."""
    if rules.skip_bad and skipped.lines:
        skipped.note("")
        return
    name = without_secrets(shard.file.path)
    message = f"{rules.field}: {name}, line {_line_number(shard, offset, rules)} {problem}"
    if not rules.skip_bad:
        raise SourceError(f"{message}; {_LEAVE_OUT}")
    skipped.note(message)


def _line_number(shard: Shard, offset: int, rules: ReadingRules) -> int:
    number, left = 1, offset
    with open_file(shard.file, field=rules.field) as stream:
        while left and (block := stream.read(min(left, PIECE_BYTES))):
            number += block.count(b"\n")
            left -= len(block)
    return number


def _parquet(rules: ReadingRules) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise SourceError(
            f"{rules.field}: Parquet files need the package pyarrow: install atoll[parquet] on every node"
        ) from None
    return parquet


def _row_group_shards(file: SourceFile, rules: ReadingRules) -> list[Shard]:
    if not file.ranges:
        raise SourceError(
            f"{rules.field}: {file.path!r} cannot be read from the middle, as Parquet needs: its server knows no ranges"
        )
    with _opened_parquet(file, rules) as opened:
        schema = opened.schema_arrow
        if rules.text_field not in schema.names:
            columns = ", ".join(schema.names[:8]) or "none"
            raise SourceError(
                f"{rules.field}: {file.path!r} has no column {rules.text_field!r}; it has {columns}. "
                "Name the one with the text"
            )
        if schema.names.count(rules.text_field) > 1:
            raise SourceError(
                f"{rules.field}: {file.path!r} has several columns {rules.text_field!r}; must have one of that name"
            )
        kind = str(schema.field(rules.text_field).type)
        if kind not in ("string", "large_string", "string_view"):
            raise SourceError(
                f"{rules.field}: column {rules.text_field!r} of {file.path!r} is {kind}, not string"
            )
        shards, first, size = [], 0, 0
        for group in range(opened.num_row_groups):
            size += opened.metadata.row_group(group).total_byte_size
            if size >= SHARD_BYTES or group == opened.num_row_groups - 1:
                shards.append(Shard(file, SourceFormat.PARQUET, first, group + 1))
                first, size = group + 1, 0
        return shards


@contextmanager
def _opened_parquet(file: SourceFile, rules: ReadingRules) -> Iterator[Any]:
    """A Parquet file; SourceError when it is none, or damaged where it is read."""
    parquet = _parquet(rules)
    import pyarrow

    try:
        with open_file(file, field=rules.field) as stream:
            yield parquet.ParquetFile(stream)
    except pyarrow.ArrowException as error:
        reason = str(error).partition("\n")[0]
        raise SourceError(
            f"{rules.field}: {file.path!r} is no Parquet file, or a damaged one: {reason}"
        ) from None


def _parquet_pieces(shard: Shard, rules: ReadingRules, skipped: Skipped) -> Iterator[Piece]:
    with _opened_parquet(shard.file, rules) as opened:
        row = sum(opened.metadata.row_group(group).num_rows for group in range(shard.start))
        groups = list(range(shard.start, shard.end or 0))
        for batch in opened.iter_batches(batch_size=64, row_groups=groups, columns=[rules.text_field]):
            for value in batch.column(0).to_pylist():
                row += 1
                try:
                    text = _checked_text(value, rules)
                except ValueError as error:
                    message = f"{rules.field}: {without_secrets(shard.file.path)}, row {row} {error}"
                    if not rules.skip_bad:
                        raise SourceError(f"{message}; {_LEAVE_OUT}") from None
                    skipped.note(message)
                    continue
                if text:
                    yield Piece(text, True, True)
                else:
                    skipped.empty_documents += 1
