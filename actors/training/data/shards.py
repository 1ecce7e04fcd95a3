"""Tokens of one shard, written as files of their own: what preparation does in parallel and keeps when it is killed."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from actors.training.data.documents import Piece, ReadingRules, Shard, Skipped, document_hash, read_pieces
from actors.training.data.files import SourceFile
from actors.training.data.tokenizer import Tokenizer
from orchestrator.spec.sections import SourceFormat


@dataclass(frozen=True)
class ShardSummary:
    """Written last: a shard with a summary is finished."""

    tokens: int
    documents: int
    """That begin in it."""
    skipped_lines: int
    empty_documents: int
    first_skipped: str


def shard_file(folder: Path, index: int, kind: str) -> Path:
    return folder / f"{index:06d}.{kind}"


def read_summary(folder: Path, index: int) -> ShardSummary | None:
    """None while the shard is not finished."""
    try:
        return ShardSummary(**json.loads(shard_file(folder, index, "json").read_text("utf-8")))
    except FileNotFoundError:
        return None


def shard_document(shard: Shard) -> dict[str, Any]:
    """A shard as JSON values."""
    return {
        "path": shard.file.path,
        "size": shard.file.size,
        "ranges": shard.file.ranges,
        "format": shard.format.value,
        "start": shard.start,
        "end": shard.end,
    }


def shard_of(document: dict[str, Any]) -> Shard:
    """The inverse of `shard_document`."""
    file = SourceFile(document["path"], document["size"], document["ranges"])
    return Shard(file, SourceFormat(document["format"]), document["start"], document["end"])


def tokenize_shard(
    folder: Path, index: int, shard: Shard, rules: ReadingRules, tokenizer: Tokenizer, dtype: str
) -> None:
    """Writes the shard's files. Memory is bounded by one piece; whoever does it writes the same bytes."""
    skipped = Skipped()
    aside = f"{uuid.uuid4().hex}.part"
    paths = {kind: shard_file(folder, index, f"{kind}.{aside}") for kind in ("tokens", "starts", "hashes")}
    try:
        counts = _write(
            paths, read_pieces(shard, rules, skipped), tokenizer, np.dtype(dtype).newbyteorder("<")
        )
        for kind, path in paths.items():
            path.rename(shard_file(folder, index, kind))
    finally:
        for path in paths.values():
            path.unlink(missing_ok=True)
    summary = ShardSummary(*counts, skipped.lines, skipped.empty_documents, skipped.first)
    write_durably(shard_file(folder, index, "json"), json.dumps(asdict(summary)).encode())


def _write(
    paths: dict[str, Path], pieces: Iterable[Piece], tokenizer: Tokenizer, dtype: np.dtype[Any]
) -> tuple[int, int]:
    """(tokens, documents that begin)."""
    tokens = documents = 0
    end = np.array([tokenizer.end_of_document], dtype)
    with (
        paths["tokens"].open("wb") as ids,
        paths["starts"].open("wb") as starts,
        paths["hashes"].open("wb") as hashes,
    ):
        for piece in pieces:
            if piece.starts:
                documents += 1
                starts.write(np.array([tokens], "<i8").tobytes())
                hashes.write(np.array([document_hash(piece.text)], "<u8").tobytes())
            encoded = tokenizer.encode(piece.text).astype(dtype)
            ids.write(encoded.tobytes())
            tokens += len(encoded)
            if piece.ends:
                ids.write(end.tobytes())
                tokens += 1
        for stream in (ids, starts, hashes):
            stream.flush()
            os.fsync(stream.fileno())
    return tokens, documents


def write_durably(path: Path, content: bytes) -> None:
    """The whole file or none, on disk when this returns."""
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        with aside.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        aside.rename(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes renames in `path` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
