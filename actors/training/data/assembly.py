"""The shards of a preparation, put together into one directory of tokens."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from actors.training.data.shards import ShardSummary, shard_file, sync_directory, write_durably
from actors.training.data.token_file import DOCUMENTS, HASHES, META, TOKENIZER, TOKENS, TokenMeta

BLOCK_BYTES = 8 << 20
BLOCK_STARTS = 1 << 16


class _Hashed:
    """A file being written, with the sha256 of what went into it."""

    def __init__(self, path: Path) -> None:
        self._stream: IO[bytes] = path.open("wb")
        self._sha256 = hashlib.sha256()

    def write(self, block: bytes) -> None:
        self._stream.write(block)
        self._sha256.update(block)

    def finish(self) -> str:
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        return self._sha256.hexdigest()


def assemble(
    work: Path,
    out: Path,
    summaries: Sequence[ShardSummary],
    tokenizer_file: Path | None,
    facts: dict[str, Any],
) -> TokenMeta:
    """Writes `out` whole: aside, synced, renamed. `facts` are the fields of TokenMeta that the shards do not tell.

    FileExistsError or OSError (ENOTEMPTY) when somebody else finished `out` meanwhile.
    """
    aside = work / f"out-{uuid.uuid4().hex}"
    aside.mkdir()
    try:
        meta = _write(aside, work / "shards", summaries, tokenizer_file, facts)
        aside.rename(out)
    except BaseException:
        discard(aside)  # where the disk is full, the next try needs its room
        raise
    sync_directory(out.parent)
    return meta


def _write(
    aside: Path,
    folder: Path,
    summaries: Sequence[ShardSummary],
    tokenizer_file: Path | None,
    facts: dict[str, Any],
) -> TokenMeta:
    sha256 = {
        TOKENS: _join(aside / TOKENS, folder, "tokens", len(summaries)),
        HASHES: _join(aside / HASHES, folder, "hashes", len(summaries)),
        DOCUMENTS: _join_starts(aside / DOCUMENTS, folder, summaries),
    }
    if tokenizer_file is not None:
        content = tokenizer_file.read_bytes()
        write_durably(aside / TOKENIZER, content)
        sha256[TOKENIZER] = hashlib.sha256(content).hexdigest()
    meta = TokenMeta(
        tokens=sum(s.tokens for s in summaries),
        documents=sum(s.documents for s in summaries),
        skipped_lines=sum(s.skipped_lines for s in summaries),
        empty_documents=sum(s.empty_documents for s in summaries),
        sha256=sha256,
        **facts,
    )
    write_durably(aside / META, meta.model_dump_json(indent=2).encode())
    return meta


def discard(directory: Path) -> None:
    """Removes what is no longer needed; others may be doing so too."""
    shutil.rmtree(directory, ignore_errors=True)


def _join(path: Path, folder: Path, kind: str, shards: int) -> str:
    joined = _Hashed(path)
    for index in range(shards):
        with shard_file(folder, index, kind).open("rb") as stream:
            while block := stream.read(BLOCK_BYTES):
                joined.write(block)
    return joined.finish()


def _join_starts(path: Path, folder: Path, summaries: Sequence[ShardSummary]) -> str:
    """Starts are counted from their shard; here they are counted from the first token of all."""
    joined, before = _Hashed(path), 0
    for index, summary in enumerate(summaries):
        with shard_file(folder, index, "starts").open("rb") as stream:
            while block := stream.read(8 * BLOCK_STARTS):
                joined.write((np.frombuffer(block, "<i8") + before).astype("<i8").tobytes())
        before += summary.tokens
    joined.write(np.array([before], "<i8").tobytes())
    return joined.finish()
