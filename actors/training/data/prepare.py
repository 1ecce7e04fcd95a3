"""Tokenises sources once, into a directory that training maps: in parallel, resumable, by several nodes together.

Everyone who runs it makes the same list of shards. A shard that nobody has claimed is taken, tokenised and kept in
`OUT.preparing`; once all are there, one participant puts them together and renames the result to `OUT`. A claim whose
owner died is taken over, and what is written depends on the shard alone, so any of them may be killed at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from actors.training.data.assembly import assemble, discard
from actors.training.data.claims import LEASE_S, Claims
from actors.training.data.crew import POLL_S, PreparationError, Progress, ShardWork
from actors.training.data.documents import ReadingRules, Shard, Skipped, plan_shards, read_pieces
from actors.training.data.files import SourceError, find_files, format_of, without_secrets
from actors.training.data.shards import ShardSummary, shard_document, write_durably
from actors.training.data.token_file import META, TOKENIZER, TokenMeta, dtype_for, read_meta
from actors.training.data.tokenizer import BpeTokenizer
from actors.training.data.worker import load_tokenizer, setup_document
from orchestrator.spec.sections import SourceFormat

SAMPLE_BYTES = 256 << 20
"""Text that a BPE is trained on, taken from the beginning of every shard alike."""
FIELD = "SOURCE"


@dataclass(frozen=True)
class Request:
    """What to prepare, and how."""

    sources: tuple[str, ...]
    out: Path
    tokenizer: str = "bytes"
    """`bytes`, `bpe`, or the path of a tokenizers JSON file."""
    vocab_size: int | None = None
    """Of a bpe."""
    end_of_document: str | None = None
    format: SourceFormat = SourceFormat.AUTO
    text_field: str = "text"
    skip_bad: bool = False
    max_line_mb: int = 16
    workers: int = 1
    lease_s: float = LEASE_S

    @property
    def rules(self) -> ReadingRules:
        return ReadingRules(self.text_field, self.skip_bad, self.max_line_mb << 20, FIELD)

    @property
    def work(self) -> Path:
        return self.out.with_name(f"{self.out.name}.preparing")


@dataclass(frozen=True)
class Plan:
    shards: tuple[Shard, ...]
    empty_files: int
    sources: tuple[str, ...]
    document: dict[str, Any] = field(repr=False)
    """All that the result depends on."""

    @property
    def identity(self) -> str:
        return hashlib.sha256(json.dumps(self.document, sort_keys=True).encode()).hexdigest()


def prepare(request: Request, report: Callable[[Progress], None] = lambda _: None) -> TokenMeta:
    """Prepares, or joins who is preparing, or finds it done. SourceError and PreparationError are for people."""
    plan = make_plan(request)
    done = _already_there(request.out, plan)
    if done is not None:
        discard(request.work)  # of one that was killed between the result and this
        return done
    try:
        (request.work / "shards").mkdir(parents=True, exist_ok=True)
        _agree(request.work, plan)
        claims = Claims(request.work / "claims", lease_s=request.lease_s)
    except OSError as error:
        raise PreparationError(f"--out: {str(request.work)!r} cannot be written: {error.strerror}") from None
    try:
        return _work_together(request, plan, claims, report)
    except (OSError, SourceError) as error:
        # Another participant may have finished, and removed the shards under this one.
        done = _already_there(request.out, plan)
        if done is not None:
            return done
        if isinstance(error, SourceError):
            raise
        raise PreparationError(f"--out: {error.filename or str(request.work)!r}: {error.strerror}") from None
    finally:
        claims.close()


def make_plan(request: Request) -> Plan:
    """The shards of all sources, the same for everyone who asks for the same."""
    shards: list[Shard] = []
    files: list[list[Any]] = []
    empty = 0
    for source in request.sources:
        for file in find_files(source, field=FIELD):
            kind = format_of(file.path, request.format)
            if kind is SourceFormat.TOKENS:
                raise PreparationError(
                    f"{FIELD}: {file.path!r} is prepared already; give text, JSONL or Parquet files"
                )
            found = plan_shards(file, kind, request.rules)
            empty += not found
            files.append([file.path, file.size, kind.value])
            shards += found
    tokenizer = request.tokenizer
    if tokenizer not in ("bytes", "bpe"):
        tokenizer = load_tokenizer(tokenizer, request.end_of_document).identity
    document = {
        "files": files,
        "shards": [shard_document(shard) for shard in shards],
        "tokenizer": tokenizer,
        "vocab_size": request.vocab_size,
        "end_of_document": request.end_of_document,
        "text_field": request.text_field,
        "skip_bad": request.skip_bad,
        "max_line_mb": request.max_line_mb,
    }
    return Plan(tuple(shards), empty, tuple(without_secrets(str(name)) for name, _, _ in files), document)


def _already_there(out: Path, plan: Plan) -> TokenMeta | None:
    if (out / META).exists():
        meta = read_meta(out, field="--out")
        if meta.plan == plan.identity:
            return meta
        raise PreparationError(
            f"--out: {str(out)!r} holds the tokens of other sources or options; give another directory or remove it"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PreparationError(
            f"--out: {str(out)!r} holds something else; give a directory that does not exist"
        )
    return None


def _option(key: str) -> str:
    """What a user gives to change `key` of a plan."""
    if key in ("files", "shards"):
        return "sources"
    return "--on-bad-line" if key == "skip_bad" else f"--{key.replace('_', '-')}"


def _agree(work: Path, plan: Plan) -> None:
    """Writes the plan down, once; PreparationError when another plan is being carried out here."""
    path, text = work / "plan.json", json.dumps(plan.document, sort_keys=True, indent=1)
    aside = work / f"plan-{uuid.uuid4().hex}"
    write_durably(aside, text.encode())
    try:
        os.link(aside, path)
    except FileExistsError:
        other = json.loads(path.read_text("utf-8"))
        differ = sorted({_option(key) for key, value in plan.document.items() if other.get(key) != value})
        if differ:
            raise PreparationError(
                f"--out: {str(work)!r} holds an unfinished preparation with other {', '.join(differ)}; "
                "give the same sources and options, another --out, or remove it"
            ) from None
    finally:
        aside.unlink(missing_ok=True)


def _work_together(
    request: Request, plan: Plan, claims: Claims, report: Callable[[Progress], None]
) -> TokenMeta:
    tokenizer_file = _tokenizer_file(request, plan, claims, report)
    # A published file's end token was given; one of ours ends documents with the unused byte.
    end = request.end_of_document if request.tokenizer not in ("bytes", "bpe") else None
    tokenizer = load_tokenizer(str(tokenizer_file) if tokenizer_file else None, end)
    dtype = dtype_for(tokenizer.vocab_size)
    folder = request.work / "shards"
    setup = setup_document(folder, request.rules, tokenizer_file, end, dtype)
    summaries = ShardWork(folder, plan.shards, claims, report).finish(setup, request.workers)
    facts = {
        "tokenizer": tokenizer.identity,
        "vocab_size": tokenizer.vocab_size,
        "end_of_document": tokenizer.end_of_document,
        "dtype": dtype,
        "empty_files": plan.empty_files,
        "sources": plan.sources,
        "plan": plan.identity,
    }
    if not any(summary.tokens for summary in summaries):
        raise PreparationError(f"{FIELD}: no document holds any text; give files that do")
    tokens = sum(summary.tokens for summary in summaries)
    report(Progress(len(summaries), len(summaries), tokens, "putting together"))
    return _put_together(request, plan, claims, summaries, tokenizer_file, facts)


def _put_together(
    request: Request,
    plan: Plan,
    claims: Claims,
    summaries: Sequence[ShardSummary],
    tokenizer_file: Path | None,
    facts: dict[str, Any],
) -> TokenMeta:
    """By whoever takes the claim; the others wait for the result."""
    while True:
        done = _already_there(request.out, plan)
        if done is not None:
            discard(request.work)
            return done
        if claims.take("assembly"):
            try:
                meta = assemble(request.work, request.out, summaries, tokenizer_file, facts)
            except OSError:
                done = _already_there(request.out, plan)
                if done is None:
                    raise
                meta = done
            discard(request.work)
            return meta
        time.sleep(POLL_S)


def _tokenizer_file(
    request: Request, plan: Plan, claims: Claims, report: Callable[[Progress], None]
) -> Path | None:
    """The tokenizer beside the shards, trained or copied there by whoever comes first; None for bytes."""
    if request.tokenizer == "bytes":
        return None
    path = request.work / TOKENIZER
    while not path.exists():
        if not claims.take("tokenizer"):
            time.sleep(POLL_S)
            continue
        report(Progress(0, len(plan.shards), 0, "training the tokenizer"))
        if request.tokenizer == "bpe":
            assert request.vocab_size is not None
            content = _trained(plan, request.rules, request.vocab_size).serialized().encode()
        else:
            content = Path(request.tokenizer).read_bytes()
        write_durably(path, content)
        claims.release("tokenizer")
    return path


def _trained(plan: Plan, rules: ReadingRules, vocab_size: int) -> BpeTokenizer:
    share = max(1, SAMPLE_BYTES // max(1, len(plan.shards)))

    def sample() -> Any:
        for shard in plan.shards:
            left = share
            for piece in read_pieces(shard, rules, Skipped()):
                yield piece.text
                left -= len(piece.text.encode())
                if left <= 0:
                    break

    return BpeTokenizer(sample(), vocab_size)
