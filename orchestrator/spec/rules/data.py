"""Text, tokenizer and vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from orchestrator.spec.sections import DataSpec, ParallelismSpec, SourceFormat, SourceSpec, TrainingSpec
from orchestrator.spec.violations import Violation

URL_SCHEMES = ("file", "s3", "http", "https")
COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".zip")


def source(data: DataSpec) -> Iterator[Violation]:
    if data.tokenizer == "bytes" and data.vocab_size != 256:
        message = (
            f"must be 256 with the tokenizer bytes, not {data.vocab_size}; other sizes need the tokenizer bpe"
        )
        yield Violation("data.vocab_size", data.vocab_size, message)
    if data.source != "pydoc" and not PurePosixPath(data.source).is_absolute():
        message = f"must be pydoc or the absolute path of a text file that every node sees, not {data.source}"
        yield Violation("data.source", data.source, message)
    if data.sources and data.source != "pydoc":
        message = f"is one source and data.sources are several: leave one of them out, not {data.source}"
        yield Violation("data.source", data.source, message)
    for index, entry in enumerate(data.sources):
        yield from _one_source(f"data.sources.{index}", entry)


def _one_source(field: str, source: SourceSpec) -> Iterator[Violation]:
    path, kind = source.path, source.format
    scheme = path.partition("://")[0] if "://" in path else ""
    if scheme and scheme not in URL_SCHEMES:
        message = f"has the scheme {scheme}; must be one of {', '.join(URL_SCHEMES)}"
        yield Violation(f"{field}.path", path, message)
    elif not scheme and path != "pydoc" and not PurePosixPath(path).is_absolute():
        message = f"must be pydoc, an absolute path that every node sees or a URL, not {path}"
        yield Violation(f"{field}.path", path, message)
    if "*" in path and scheme in ("http", "https"):
        message = "cannot hold * with http, which lists no files; name each file, or use s3"
        yield Violation(f"{field}.path", path, message)
    elif "*" in path.rstrip("/").rpartition("/")[0]:
        message = "may hold * in its last part alone"
        yield Violation(f"{field}.path", path, message)
    if path.endswith(COMPRESSED):
        message = f"is compressed, which nothing here reads: must be a plain file, not {path}"
        yield Violation(f"{field}.path", path, message)
    if kind is SourceFormat.TOKENS and scheme not in ("", "file"):
        message = f"must not be tokens for a {scheme} URL: prepared tokens are memory-mapped from a path"
        yield Violation(f"{field}.format", kind.value, message)
    if path == "pydoc" and kind not in (SourceFormat.AUTO, SourceFormat.TEXT):
        message = f"must be text for pydoc, not {kind.value}"
        yield Violation(f"{field}.format", kind.value, message)
    if source.field is not None and kind in (SourceFormat.TEXT, SourceFormat.TOKENS):
        message = f"is for the formats jsonl and parquet; leave it out with {kind.value}"
        yield Violation(f"{field}.field", source.field, message)


def tokenizer(data: DataSpec) -> Iterator[Violation]:
    if data.tokenizer == "file" and data.tokenizer_file is None:
        message = "must name a tokenizers JSON file when data.tokenizer is file"
        yield Violation("data.tokenizer_file", None, message)
    for name, value in (("tokenizer_file", data.tokenizer_file), ("end_of_document", data.end_of_document)):
        if value is not None and data.tokenizer != "file":
            message = f"belongs to the tokenizer file; leave it out with {data.tokenizer}"
            yield Violation(f"data.{name}", value, message)
    if data.tokenizer_file is not None and not PurePosixPath(data.tokenizer_file).is_absolute():
        message = f"must be an absolute path that every node sees, not {data.tokenizer_file}"
        yield Violation("data.tokenizer_file", data.tokenizer_file, message)
    if not data.sources:
        for name, asked in (("holdout", data.holdout == "hash"), ("document_masks", data.document_masks)):
            if asked:
                message = "is about documents, and data.source is a single one; give data.sources"
                yield Violation(f"data.{name}", getattr(data, name), message)


def document_masks(plan: ParallelismSpec, training: TrainingSpec, data: DataSpec) -> Iterator[Violation]:
    """Masks follow the tokens of the sequence, which only a rank with all positions and the first stage has."""
    if not data.document_masks:
        return
    for field, value in (("cp", plan.cp), ("pp", plan.pp)):
        if value > 1:
            message = f"needs parallelism.{field} 1, where each rank sees the tokens of whole sequences, not {value}"
            yield Violation("data.document_masks", True, message)
    if training.compile:
        yield Violation("data.document_masks", True, "needs training.compile false")


def vocabulary_split(plan: ParallelismSpec, data: DataSpec) -> Iterator[Violation]:
    """Shares of the vocabulary need not be equal, the last rank's is the smallest: it needs a row at least."""
    share = -(-data.vocab_size // plan.tp)
    if share * (plan.tp - 1) >= data.vocab_size:
        message = (
            f"leaves some rank no part of data.vocab_size ({data.vocab_size}), cut into parts of {share}; "
            f"must be another degree, such as {-(-data.vocab_size // share)}, not {plan.tp}"
        )
        yield Violation("parallelism.tp", plan.tp, message)
