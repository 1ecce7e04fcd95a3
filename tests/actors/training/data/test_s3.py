"""Sources in an object store: a real S3 server (moto) on the loopback interface, reached as a cluster's would be."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from actors.training.data import documents
from actors.training.data.documents import ReadingRules, Skipped, plan_shards, read_pieces
from actors.training.data.files import SourceError, find_files, format_of, open_file
from actors.training.data.prepare import Request, prepare
from actors.training.data.sources import tokenizer_of_sources
from actors.training.data.token_file import open_token_file
from orchestrator.spec.sections import DataSpec, SourceFormat

pytest.importorskip("s3fs", reason="s3fs is not installed: pip install atoll[s3]")
servers = pytest.importorskip("moto.server", reason="moto is not installed: pip install atoll[dev]")

RULES = ReadingRules("text", skip_bad=False, max_bytes=1 << 20, field="F")
TEXTS = [f"document {i} größe" for i in range(200)]
BYTES = b"".join(text.encode() + b"\xff" for text in TEXTS)
"""As the tokenizer `bytes` has them."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = servers.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(autouse=True)
def environment(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What tells boto of the store; nothing of the developer's own, and no question to a cloud's metadata service."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "reader",
        "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    forget()
    yield
    forget()


def forget() -> None:
    """Connections and listings of the test before."""
    fsspec.filesystem("s3").clear_instance_cache()


@pytest.fixture
def bucket(environment: None) -> Iterator[str]:
    store = fsspec.filesystem("s3")
    store.mkdir("corpus")
    store.pipe("corpus/web/a.jsonl", jsonl(TEXTS[:90]))
    store.pipe("corpus/web/b.jsonl", jsonl(TEXTS[90:]))
    store.pipe("corpus/web/deeper/c.jsonl", jsonl(["not asked for"]))
    store.pipe("corpus/books/a.txt", "größe\n".encode() * 50)
    store.pipe("corpus/empty.txt", b"")
    yield "s3://corpus"
    store.rm("corpus", recursive=True)


def jsonl(texts: list[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def read(path: str) -> list[str]:
    """The pieces of all files."""
    return [
        piece.text
        for file in find_files(path, field="F")
        for shard in plan_shards(file, format_of(file.path, SourceFormat.AUTO), RULES)
        for piece in read_pieces(shard, RULES, Skipped())
    ]


def test_files_of_a_pattern_are_read_in_shards_and_in_order(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "SHARD_BYTES", 1000)
    files = find_files(f"{bucket}/web/*.jsonl", field="F")
    assert [file.path for file in files] == [f"{bucket}/web/a.jsonl", f"{bucket}/web/b.jsonl"]
    assert all(len(plan_shards(file, SourceFormat.JSONL, RULES)) > 1 for file in files)
    assert read(f"{bucket}/web/*.jsonl") == TEXTS
    assert read(f"{bucket}/web/*") == TEXTS


def test_text_and_an_empty_file(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "SHARD_BYTES", 100)
    assert "".join(read(f"{bucket}/books/a.txt")) == "größe\n" * 50
    assert read(f"{bucket}/empty.txt") == []


def test_parquet_by_row_groups(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    written = io.BytesIO()
    pq.write_table(pa.table({"text": TEXTS}), written, row_group_size=40)
    fsspec.filesystem("s3").pipe("corpus/rows.parquet", written.getvalue())
    monkeypatch.setattr(documents, "SHARD_BYTES", 1)
    (file,) = find_files(f"{bucket}/rows.parquet", field="F")
    assert len(plan_shards(file, SourceFormat.PARQUET, RULES)) == 5
    assert read(f"{bucket}/rows.parquet") == TEXTS


def test_a_bad_line_is_named_by_its_number(bucket: str) -> None:
    fsspec.filesystem("s3").pipe("corpus/bad.jsonl", jsonl(TEXTS[:3]) + b"no json\n")
    with pytest.raises(SourceError, match=r"F: s3://corpus/bad\.jsonl, line 4 is no JSON"):
        read(f"{bucket}/bad.jsonl")


def test_preparation_reads_a_bucket_with_workers_of_its_own(bucket: str, tmp_path: Path) -> None:
    meta = prepare(Request((f"{bucket}/web/*.jsonl",), tmp_path / "out", workers=2))
    assert meta.documents == len(TEXTS)
    assert meta.sources == (f"{bucket}/web/a.jsonl", f"{bucket}/web/b.jsonl")
    assert open_token_file(str(tmp_path / "out"), field="F").tokens.astype(np.uint8).tobytes() == BYTES


def test_a_job_trains_on_a_bucket(bucket: str, tmp_path: Path) -> None:
    """A process of its own, as ranks are: it knows the store by its environment alone."""
    job = {
        "name": "s3",
        "model": {"layers": 1, "hidden": 16, "heads": 2, "kv_heads": 2, "ffn_hidden": 32},
        "training": {"steps": 2, "global_batch": 2, "sequence_length": 16, "eval_sequences": 4},
        "data": {"sources": [{"path": f"{bucket}/web/*.jsonl"}, {"path": f"{bucket}/books/a.txt"}]},
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-m", "actors.training", "job.json", "--directory", ".", "--threads", "1"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    steps = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"step"')]
    assert [record["step"] for record in steps] == [1, 2]


def test_the_source_that_is_not_there_is_named_by_its_place_in_the_job_file(bucket: str) -> None:
    sources = [{"path": f"{bucket}/books/a.txt"}, {"path": f"{bucket}/books/b.txt"}]
    data = DataSpec.model_validate({"sources": sources, "tokenizer": "bpe", "vocab_size": 300})
    assert refusal(lambda: tokenizer_of_sources(data)) == (
        "data.sources.1.path: nothing is found at 's3://corpus/books/b.txt'; give a URL that exists"
    )


# --- What goes wrong


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("s3://corpus/none.jsonl", "nothing is found at 's3://corpus/none.jsonl'; give a URL that exists"),
        ("s3://corpus/*.zip", "nothing matches 's3://corpus/*.zip'; give a URL that exists"),
        ("s3://none/a.txt", "there is no bucket 'none', which 's3://none/a.txt' names; give a URL that exists"),
        ("s3://none/*.txt", "there is no bucket 'none', which 's3://none/*.txt' names; give a URL that exists"),
        ("s3://corpus/web", "'s3://corpus/web' is a directory; name files in it, as in 's3://corpus/web/*.jsonl'"),
        ("s3://corpus", "'s3://corpus' is a directory; name files in it, as in 's3://corpus/*.jsonl'"),
        ("s3://", "'s3://' names no bucket; give s3://BUCKET/KEY"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named(bucket: str, path: str, said: str) -> None:
    assert refusal(lambda: find_files(path, field="F")) == f"F: {said}"


def test_a_file_deleted_before_it_is_read(bucket: str) -> None:
    (file,) = find_files(f"{bucket}/books/a.txt", field="F")
    fsspec.filesystem("s3").rm("corpus/books/a.txt")
    forget()
    said = refusal(lambda: content(file))
    assert said == "F: 's3://corpus/books/a.txt' cannot be read: it is not there any more"


def test_wrong_credentials(bucket: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = find_files(f"{bucket}/books/a.txt", field="F")
    forget()
    ask_for_credentials(endpoint, after=0)
    try:
        path = f"{bucket}/books/*.txt"
        said = refusal(lambda: find_files(path, field="F"))
        assert re.fullmatch(
            rf"F: '{re.escape(path)}' cannot be reached: .*(InvalidAccessKeyId|does not exist).*", said
        )
        assert "\n" not in said
        assert "cannot be read: " in refusal(lambda: content(file))
        assert "a-secret-of-the-test" not in said
    finally:
        ask_for_credentials(endpoint, after=None)
        forget()


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    said = refusal(lambda: find_files("s3://corpus/a.txt", field="F"))
    assert said == "F: 's3://corpus/a.txt' cannot be reached: Unable to locate credentials"


def test_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    said = refusal(lambda: find_files("s3://corpus/a.txt", field="F"))
    assert said.startswith("F: 's3://corpus/a.txt' cannot be reached: ")
    assert "127.0.0.1:9" in said
    assert "\n" not in said


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(SourceError) as refused:
        call()
    return str(refused.value)


def content(file: Any) -> bytes:
    with open_file(file, field="F") as stream:
        return stream.read()


def ask_for_credentials(endpoint: str, *, after: int | None) -> None:
    """Makes the server look at who asks, once so many requests have passed; None: never again."""
    body = str(1_000_000_000 if after is None else after).encode()
    request = urllib.request.Request(
        f"{endpoint}/moto-api/reset-auth", data=body, headers={"Content-Type": "text/plain"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200
