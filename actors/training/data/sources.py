"""The sources of a job as streams: texts read and tokenized by rank 0, prepared tokens mapped by every rank."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from actors.training.data.blend import Blend, TokenStream, exact_weight
from actors.training.data.documents import (
    PIECE_BYTES,
    ReadingRules,
    Skipped,
    document_hash,
    plan_shards,
    read_pieces,
)
from actors.training.data.files import SourceError, find_files, format_of, without_secrets
from actors.training.data.identity import DataIdentity, digest_tokens
from actors.training.data.text import PYDOC, read_text
from actors.training.data.token_file import TOKENIZER, open_token_file
from actors.training.data.tokenizer import FileTokenizer, Tokenizer, build_tokenizer, check_vocabulary
from orchestrator.spec.sections import DataSpec, SourceFormat, SourceSpec

HASHES = 1 << 64
TEXTS = "data.tokenizer"
"""Field that the mark of all texts goes by: it is rank 0's alone, who reads them."""


@dataclass(frozen=True)
class OpenedBlend:
    training: Blend
    held_back: Blend
    identity: DataIdentity
    end_of_document: int


@dataclass(frozen=True)
class _Parts:
    """One source, split: ranges of `tokens` that are trained on, and that are held back."""

    tokens: npt.NDArray[Any]
    training: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
    """(begins, ends)."""
    held_back: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class _Mark:
    """What ranks compare before they train: the same tokenizer and the same bytes on every node."""

    tokenizer: str
    vocab_size: int
    end_of_document: int
    content: str = ""
    field: str = ""


_Failure = tuple[type[Exception], str]
"""A plain ValueError refuses what the job names, so that it is not tried again; anything else may pass."""


def open_blend(spec: DataSpec, *, sequence_length: int, rank: int) -> OpenedBlend:
    """The sources of `spec`; every rank gets the same or raises the same ValueError. Collective over the world."""
    prepared: dict[int, tuple[_Parts, _Mark]] = {}
    texts: dict[int, _Parts] = {}
    marks: list[_Mark] = []
    failure: _Failure | None = None
    try:
        is_prepared = [
            _is_prepared(source, f"data.sources.{i}.path") for i, source in enumerate(spec.sources)
        ]
        for i, source in enumerate(spec.sources):
            if is_prepared[i]:
                prepared[i] = _open_prepared(spec, source, f"data.sources.{i}.path")
        marks = [mark for _, mark in prepared.values()]
        if rank == 0 and not all(is_prepared):
            texts, mark = _read_texts(spec, [i for i, done in enumerate(is_prepared) if not done])
            marks.append(mark)
        _agree(spec, marks)
    except Exception as error:
        # Whatever it is, the others must hear of it: they are about to wait for this rank.
        if isinstance(error, ValueError):
            failure = ValueError, str(error)
        else:
            failure = RuntimeError, f"{type(error).__name__}: {error}"
    marks = _same_everywhere(failure, marks, rank)
    texts = _sent_from_rank_0(texts)
    parts = {i: opened for i, (opened, _) in prepared.items()} | texts
    content = hashlib.sha256(repr([mark.content for mark in marks]).encode()).hexdigest()
    identity = DataIdentity(marks[0].tokenizer, f"sha256:{content}")
    training, held_back = _checked(spec, [parts[i] for i in range(len(spec.sources))], sequence_length)
    return OpenedBlend(training, held_back, identity, marks[0].end_of_document)


def tokenizer_of_sources(spec: DataSpec) -> Tokenizer:
    """The tokenizer that `open_blend` speaks of, made once more by a process that is none of the ranks."""
    if spec.tokenizer != "bpe":
        return build_tokenizer(spec, "")
    for index, source in enumerate(spec.sources):
        field = f"data.sources.{index}.path"
        if _is_prepared(source, field):  # all sources of a job have one tokenizer
            saved = Path(source.path.removeprefix("file://")) / TOKENIZER
            return FileTokenizer(str(saved), end_of_document=None, field=field)
    skipped = Skipped()
    split = [_split(list(_documents(spec, index, skipped)), spec) for index in range(len(spec.sources))]
    return build_tokenizer(
        spec, (piece for training, _ in split for document, _ in training for piece in document)
    )


def _is_prepared(source: SourceSpec, field: str) -> bool:
    if source.path == PYDOC:
        return False
    return format_of(source.path, source.format) is SourceFormat.TOKENS


def _open_prepared(spec: DataSpec, source: SourceSpec, field: str) -> tuple[_Parts, _Mark]:
    file = open_token_file(source.path, field=field)
    meta = file.meta
    if meta.vocab_size > spec.vocab_size:
        check_vocabulary(meta.vocab_size, spec, what=f"the tokenizer of {source.path!r}")
    mark = _Mark(
        meta.tokenizer,
        meta.vocab_size,
        meta.end_of_document,
        content=repr(sorted(meta.sha256.items())),
        field=field,
    )
    documents = np.asarray(file.documents)
    if spec.holdout == "hash":
        held = np.asarray(file.hashes) < np.uint64(int(spec.holdout_fraction * HASHES))
        return _Parts(file.tokens, _runs(documents, ~held), _runs(documents, held)), mark
    cut = meta.tokens - round(meta.tokens * spec.holdout_fraction)
    return _Parts(file.tokens, _range(0, cut), _range(cut, meta.tokens)), mark


def _range(begin: int, end: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return np.array([begin], np.int64), np.array([end], np.int64)


def _runs(documents: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]) -> tuple[Any, Any]:
    """Ranges of tokens of the documents chosen; neighbours are one range."""
    edges = np.diff(np.concatenate(([False], chosen, [False])).astype(np.int8))
    return documents[np.flatnonzero(edges == 1)], documents[np.flatnonzero(edges == -1)]


Document = list[str]
"""The pieces of a document, as they are tokenized."""


def _read_texts(spec: DataSpec, indices: list[int]) -> tuple[dict[int, _Parts], _Mark]:
    """The sources at `indices`, read into memory. The tokenizer is trained on their training parts alone."""
    skipped = Skipped()
    split = {i: _split(list(_documents(spec, i, skipped)), spec) for i in indices}
    if skipped.lines:
        print(f"data: {skipped.lines} lines left out, the first: {skipped.first}", flush=True)
    text = (piece for training, _ in split.values() for document, _ in training for piece in document)
    tokenizer = build_tokenizer(spec, text)
    check_vocabulary(tokenizer.vocab_size, spec, what="the tokenizer")
    encoded = {
        i: (_encoded(training, tokenizer), _encoded(held_back, tokenizer))
        for i, (training, held_back) in split.items()
    }
    mark = _Mark(
        tokenizer.identity,
        tokenizer.vocab_size,
        tokenizer.end_of_document,
        content=digest_tokens(part for both in encoded.values() for part in both),
        field=TEXTS,
    )
    return {i: _in_memory(*both) for i, both in encoded.items()}, mark


def _in_memory(training: npt.NDArray[np.int32], held_back: npt.NDArray[np.int32]) -> _Parts:
    cut, end = len(training), len(training) + len(held_back)
    return _Parts(np.concatenate((training, held_back)), _range(0, cut), _range(cut, end))


def _documents(spec: DataSpec, index: int, skipped: Skipped) -> Iterator[Document]:
    source, field = spec.sources[index], f"data.sources.{index}"
    if source.path == PYDOC:
        yield [read_text(PYDOC)]
        return
    rules = ReadingRules(
        source.field or "text", spec.on_bad_line == "skip", spec.max_line_mb << 20, f"{field}.path"
    )
    found = False
    for file in find_files(source.path, field=rules.field):
        document: Document = []
        for shard in plan_shards(file, format_of(file.path, source.format), rules):
            for piece in read_pieces(shard, rules, skipped):
                document.append(piece.text)
                if piece.ends:
                    found = True
                    yield document
                    document = []
    if not found:
        raise SourceError(f"{rules.field}: {source.path!r} holds no document; give files with text in them")


Ended = tuple[Document, bool]
"""A document, and whether it ends here or was cut."""


def _split(documents: list[Document], spec: DataSpec) -> tuple[list[Ended], list[Ended]]:
    """(training, held back)."""
    if spec.holdout == "hash":
        limit = int(spec.holdout_fraction * HASHES)
        held = [document_hash(_beginning(document)) < limit for document in documents]
        return (
            [(d, True) for d, h in zip(documents, held, strict=True) if not h],
            [(d, True) for d, h in zip(documents, held, strict=True) if h],
        )
    total = sum(len(piece) for document in documents for piece in document)
    left = total - round(total * spec.holdout_fraction)
    training: list[Ended] = []
    held_back: list[Ended] = []
    for document in documents:
        head, tail = _cut(document, left)
        left -= sum(map(len, head))
        if head:
            training.append((head, not tail))
        if tail:
            held_back.append((tail, True))
    return training, held_back


def _beginning(document: Document) -> str:
    """What `document_hash` looks at: the first piece, as preparation has it."""
    return document[0][:PIECE_BYTES]


def _cut(document: Document, characters: int) -> tuple[Document, Document]:
    head: Document = []
    for index, piece in enumerate(document):
        if len(piece) > characters:
            return head + ([piece[:characters]] if characters else []), [
                piece[characters:],
                *document[index + 1 :],
            ]
        head.append(piece)
        characters -= len(piece)
    return head, []


def _encoded(documents: Iterable[Ended], tokenizer: Tokenizer) -> npt.NDArray[np.int32]:
    end = np.array([tokenizer.end_of_document], np.int32)
    parts = [np.empty(0, np.int32)]
    for document, ends in documents:
        parts += [tokenizer.encode(piece) for piece in document]
        if ends:
            parts.append(end)
    return np.concatenate(parts)


def _agree(spec: DataSpec, marks: list[_Mark]) -> None:
    """ValueError when sources speak in different tokens, or in others than the job's."""
    for mark in marks[1:]:
        if mark.tokenizer != marks[0].tokenizer:
            raise SourceError(
                f"{mark.field}: has another tokenizer ({mark.tokenizer[:19]}) than {marks[0].field} "
                f"({marks[0].tokenizer[:19]}); prepare all sources of a job with one tokenizer"
            )
    if not marks:
        return
    wanted = _named_identity(spec)
    for mark in marks:
        is_bytes = mark.tokenizer == "bytes"
        if (wanted is not None and mark.tokenizer != wanted) or (spec.tokenizer == "bpe" and is_bytes):
            right = "bytes" if is_bytes else "bpe, or file with the tokenizer.json of that directory"
            raise SourceError(
                f"data.tokenizer: is {spec.tokenizer}, but the tokens of {mark.field} were made by another tokenizer "
                f"({mark.tokenizer[:19]}); must be {right}"
            )


def _named_identity(spec: DataSpec) -> str | None:
    """Identity of the tokenizer that the job names; None for a bpe, which the tokens bring along."""
    return None if spec.tokenizer == "bpe" else build_tokenizer(spec, "").identity


def _same_everywhere(failure: _Failure | None, marks: list[_Mark], rank: int) -> list[_Mark]:
    """The marks of rank 0, once all ranks have opened their sources and see the same prepared tokens."""
    if dist.get_world_size() == 1:
        if failure is not None:
            kind, message = failure
            raise kind(message)
        return marks
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, (failure, marks))
    for other, (problem, _) in enumerate(everywhere):
        if problem is not None:
            kind, message = problem
            raise kind(f"{message} (rank {other})")
    first: list[_Mark] = everywhere[0][1]
    for other, (_, theirs) in enumerate(everywhere):
        found = {mark.field: mark for mark in theirs}
        for mine in first:
            if mine.field == TEXTS or mine == found.get(mine.field):
                continue
            what = "different tokens" if mine.field in found else "prepared tokens and none"
            raise ValueError(f"{mine.field}: ranks 0 and {other} see {what}; all must see the same directory")
    return first


def _sent_from_rank_0(texts: dict[int, _Parts]) -> dict[int, _Parts]:
    """Tokens of the texts, on every rank."""
    if dist.get_world_size() == 1:
        return texts
    sizes: list[Any] = [
        {i: (int(p.training[1][0]), len(p.tokens)) for i, p in texts.items()}
        if dist.get_rank() == 0
        else None
    ]
    dist.broadcast_object_list(sizes, src=0, device=torch.device("cpu"))
    received = {}
    for i, (cut, count) in sizes[0].items():
        tokens = torch.from_numpy(texts[i].tokens) if i in texts else torch.empty(count, dtype=torch.int32)
        dist.broadcast(tokens, src=0)
        received[i] = _Parts(tokens.numpy(), _range(0, cut), _range(cut, count))
    return received


def _checked(spec: DataSpec, parts: list[_Parts], sequence_length: int) -> tuple[Blend, Blend]:
    """What is trained on, and what is held back.

    ValueError when a source is too short to be trained on, or nothing is held back.
    """
    needed = sequence_length + 1
    names = [
        f"data.sources.{i}.path: {without_secrets(source.path)!r}" for i, source in enumerate(spec.sources)
    ]
    training, held_back = [], []
    for name, part in zip(names, parts, strict=True):
        training.append(TokenStream(part.tokens, *part.training, name=name, vocab_size=spec.vocab_size))
        held_back.append(TokenStream(part.tokens, *part.held_back, name=name, vocab_size=spec.vocab_size))
    for stream in training:
        if len(stream) < needed:
            raise ValueError(
                f"{stream.name} is too short: its training part has {len(stream)} tokens, at least {needed} are needed "
                f"(training.sequence_length {sequence_length} and one more to predict); give more text or shorter "
                "sequences"
            )
    longest = max(len(stream) for stream in held_back)
    if longest < needed:
        raise ValueError(
            f"data.holdout_fraction: {spec.holdout_fraction} holds back {longest} tokens of the source with the most, "
            f"at least {needed} are needed; give a larger one, more text or shorter sequences"
        )
    weights = tuple(exact_weight(source.weight) for source in spec.sources)
    return Blend(tuple(training), weights), Blend(tuple(held_back), weights)
