"""Sources, tokenizers and documents in a job file: what is refused, and all of it at once."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.spec import InvalidSpecError, parse_spec

JSONL = {"path": "/data/a.jsonl"}
FILE = {"tokenizer": "file", "tokenizer_file": "/t.json", "vocab_size": 1000}


def job(data: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {"name": "a", "training": {"steps": 1} | sections.pop("training", {}), "data": data, **sections}


def refused(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidSpecError) as error:
        parse_spec(document)
    return {violation.field: violation.message for violation in error.value.violations}


@pytest.mark.parametrize(
    "data",
    [
        {"source": "/a.txt"},
        {"sources": [{"path": "pydoc"}]},
        {"sources": [JSONL, {"path": "s3://bucket/part-*.parquet", "field": "body", "weight": 0.25}]},
        {"sources": [{"path": "https://host/a.txt"}, {"path": "file:///a/*.txt"}]},
        {"sources": [{"path": "/tokens", "format": "tokens"}], "tokenizer": "bpe", "vocab_size": 512},
        {"sources": [JSONL], **FILE, "end_of_document": "</s>"},
        {
            "sources": [JSONL],
            "holdout": "hash",
            "document_masks": True,
            "on_bad_line": "skip",
            "max_line_mb": 1,
        },
    ],
)
def test_taken(data: dict[str, Any]) -> None:
    parse_spec(job(data))


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"sources": [JSONL], "source": "/b.txt"}, "data.source",
     "is one source and data.sources are several: leave one of them out, not /b.txt"),
    ({"sources": [{"path": "a.jsonl"}]}, "data.sources.0.path",
     "must be pydoc, an absolute path that every node sees or a URL, not a.jsonl"),
    ({"sources": [JSONL, {"path": "ftp://host/a"}]}, "data.sources.1.path",
     "has the scheme ftp; must be one of file, s3, http, https"),
    ({"sources": [{"path": "http://host/*.txt"}]}, "data.sources.0.path",
     "cannot hold * with http, which lists no files; name each file, or use s3"),
    ({"sources": [{"path": "/data/*/a.txt"}]}, "data.sources.0.path", "may hold * in its last part alone"),
    ({"sources": [{"path": "/a.jsonl.gz"}]}, "data.sources.0.path",
     "is compressed, which nothing here reads: must be a plain file, not /a.jsonl.gz"),
    ({"sources": [{"path": "s3://b/t", "format": "tokens"}]}, "data.sources.0.format",
     "must not be tokens for a s3 URL: prepared tokens are memory-mapped from a path"),
    ({"sources": [{"path": "pydoc", "format": "jsonl"}]}, "data.sources.0.format",
     "must be text for pydoc, not jsonl"),
    ({"sources": [{"path": "/a", "format": "text", "field": "body"}]}, "data.sources.0.field",
     "is for the formats jsonl and parquet; leave it out with text"),
    ({"sources": [{"path": "/a", "weight": 0}]}, "data.sources.0.weight", "must be more than 0.0, not 0"),
    ({"sources": [{"path": "/a", "wieght": 2}]}, "data.sources.0.wieght",
     "is not a known key; did you mean data.sources.0.weight?"),
    ({"sources": [{"weight": 2}]}, "data.sources.0.path", "is required"),
    ({"sources": JSONL}, "data.sources", "must be a list, not a mapping"),
    ({"tokenizer": "file", "vocab_size": 1000}, "data.tokenizer_file",
     "must name a tokenizers JSON file when data.tokenizer is file"),
    ({**FILE, "tokenizer_file": "t.json"}, "data.tokenizer_file",
     "must be an absolute path that every node sees, not t.json"),
    ({"tokenizer_file": "/t.json"}, "data.tokenizer_file",
     "belongs to the tokenizer file; leave it out with bytes"),
    ({"end_of_document": "</s>"}, "data.end_of_document", "belongs to the tokenizer file; leave it out with bytes"),
    ({"holdout": "hash"}, "data.holdout",
     "is about documents, and data.source is a single one; give data.sources"),
    ({"document_masks": True}, "data.document_masks",
     "is about documents, and data.source is a single one; give data.sources"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "field", "message"), WRONG)
def test_refused_in_one_place(data: dict[str, Any], field: str, message: str) -> None:
    assert refused(job(data)) == {field: message}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"parallelism": {"cp": 2}},
            "needs parallelism.cp 1, where each rank sees the tokens of whole sequences, not 2",
        ),
        (
            {"parallelism": {"pp": 2, "microbatches": 2}},
            "needs parallelism.pp 1, where each rank sees the tokens of whole sequences, not 2",
        ),
        ({"training": {"compile": True}}, "needs training.compile false"),
    ],
)
def test_document_masks_need_whole_sequences(sections: dict[str, Any], message: str) -> None:
    data = {"sources": [JSONL], "document_masks": True}
    assert refused(job(data, **sections)) == {"data.document_masks": message}


def test_everything_at_once() -> None:
    data = {
        "source": "b.txt",
        "sources": [{"path": "a", "wieght": 1}, {"path": "ftp://h/*/a.gz"}],
        "tokenizer_file": "t.json",
        "vocab_size": 300,
    }
    assert set(refused(job(data))) == {
        "data.source",
        "data.sources.0.path",
        "data.sources.0.wieght",
        "data.sources.1.path",
        "data.tokenizer_file",
        "data.vocab_size",
    }
