"""Sources over HTTP, from servers with and without ranges."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from actors.training.data import documents, files
from actors.training.data.documents import ReadingRules, Shard, Skipped, plan_shards, read_pieces
from actors.training.data.files import SourceError, SourceFile, find_files, format_of
from orchestrator.spec.sections import SourceFormat

RULES = ReadingRules("text", skip_bad=False, max_bytes=1 << 20, field="F")
TEXTS = [f"document {i} größe" for i in range(200)]


class Plain(SimpleHTTPRequestHandler):
    """Knows no ranges."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        return


class Ranged(Plain):
    """Answers single ranges (RFC 9110, section 14)."""

    def end_headers(self) -> None:
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        if wanted is None:
            return super().do_GET()
        content = Path(self.translate_path(self.path)).read_bytes()
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1 if last else None]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)
        return None


@pytest.fixture(params=[Plain, Ranged])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))

    def handler(*arguments: Any) -> Any:
        return request.param(*arguments, directory=str(tmp_path))

    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_documents_over_http(
    address: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "SHARD_BYTES", 1000)
    (file,) = find_files(f"{address}/a.jsonl", field="F")
    shards = plan_shards(file, format_of(file.path, SourceFormat.AUTO), RULES)
    with_ranges = request.node.callspec.params["address"] is Ranged
    assert (len(shards) > 1) is with_ranges
    assert [p.text for shard in shards for p in read_pieces(shard, RULES, Skipped())] == TEXTS


def test_what_is_not_there_is_named(address: str) -> None:
    with pytest.raises(SourceError, match=r"F: nothing is found at 'http://127\.0\.0\.1:\d+/b\.jsonl'"):
        find_files(f"{address}/b.jsonl", field="F")


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(SourceError, match=r"F: 'http://127\.0\.0\.1:9/a\.jsonl' cannot be reached: "):
        find_files("http://127.0.0.1:9/a.jsonl", field="F")


class Stalling(Plain):
    """Says how long the file is, sends half of it, and then nothing."""

    released = threading.Event()

    def do_GET(self) -> None:
        content = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        self.released.wait(30)
        self.close_connection = True


@pytest.mark.parametrize("address", [Stalling], indirect=True)
def test_a_server_that_stalls_is_given_up(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STALL_S", 0.25)
    shard = Shard(SourceFile(f"{address}/a.jsonl", None, ranges=False), SourceFormat.JSONL, 0, None)
    try:
        with pytest.raises(
            SourceError, match=r"a\.jsonl' cannot be read: the server sent nothing for 0\.25 s"
        ):
            list(read_pieces(shard, RULES, Skipped()))
    finally:
        Stalling.released.set()
