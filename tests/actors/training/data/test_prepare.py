"""Preparation: what it writes, that it may be killed and shared, and what it refuses."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.training.data import assembly, documents, prepare
from actors.training.data.claims import Claims
from actors.training.data.crew import PreparationError, Progress, start_worker
from actors.training.data.documents import document_hash
from actors.training.data.files import SourceError
from actors.training.data.prepare import Request
from actors.training.data.shards import shard_document, shard_file
from actors.training.data.token_file import TokenMeta, open_token_file
from actors.training.data.tokenizer import BpeTokenizer, BytesTokenizer, FileTokenizer
from actors.training.data.worker import setup_document

TEXTS = [f"document {i}: größe {i * i}\n" * (1 + i % 5) for i in range(120)]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "SHARD_BYTES", 2000)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return path


def request(source: Path, out: Path, **options: Any) -> Request:
    return Request(sources=(str(source),), out=out, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def assert_holds(out: Path, texts: list[str]) -> None:
    """Bytes of each text, each with its end, and what is said about them."""
    file = open_token_file(str(out), field="F")
    wanted = b"".join(text.encode() + b"\xff" for text in texts)
    assert file.tokens.astype(np.uint8).tobytes() == wanted
    lengths = [len(text.encode()) + 1 for text in texts]
    assert file.documents.tolist() == [0, *np.cumsum(lengths).tolist()]
    # Shards are smaller here than pieces are otherwise: the beginning of a document is what its first shard holds.
    assert file.hashes.tolist() == [document_hash(beginning(text)) for text in texts]
    assert (file.meta.tokens, file.meta.documents) == (len(wanted), len(texts))
    for name, digest in file.meta.sha256.items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest


def beginning(text: str) -> str:
    """The lines of a text file that begin in its first shard; a JSONL document is never cut."""
    if len(text) < 1000:
        return text
    lines, size = [], 0
    for line in text.splitlines(keepends=True):
        if size >= documents.SHARD_BYTES:
            break
        lines.append(line)
        size += len(line.encode())
    return "".join(lines)


def test_tokens_documents_hashes_and_their_digests(source: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    meta = prepare.prepare(request(source, tmp_path / "out", workers=2), seen.append)
    assert_holds(tmp_path / "out", TEXTS)
    assert (meta.tokenizer, meta.vocab_size, meta.dtype, meta.end_of_document) == (
        "bytes",
        256,
        "uint16",
        255,
    )
    assert [entry.name for entry in tmp_path.iterdir() if "preparing" in entry.name] == []
    assert seen[-1].shards_done == seen[-1].shards > 3
    assert seen[-1].tokens == meta.tokens


def test_a_second_time_finds_it_done(source: Path, tmp_path: Path) -> None:
    first = prepare.prepare(request(source, tmp_path / "out"))
    before = contents(tmp_path / "out")
    seen: list[Progress] = []
    assert prepare.prepare(request(source, tmp_path / "out"), seen.append) == first
    assert (contents(tmp_path / "out"), seen) == (before, [])


def test_text_files_are_documents_over_any_number_of_shards(tmp_path: Path) -> None:
    texts = ["".join(TEXTS), "short", "größe\n" * 700]
    for index, text in enumerate(texts):
        (tmp_path / f"{index}.txt").write_text(text)
    (tmp_path / "3.txt").write_text("")
    meta = prepare.prepare(Request((str(tmp_path / "*.txt"),), tmp_path / "out", workers=2))
    assert_holds(tmp_path / "out", texts)
    assert meta.empty_files == 1


def test_a_bpe_is_trained_kept_beside_the_tokens_and_read_again(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    meta = prepare.prepare(request(source, out, tokenizer="bpe", vocab_size=320))
    trained = BpeTokenizer(TEXTS, 320)
    assert (out / "tokenizer.json").read_text() == trained.serialized()
    loaded = FileTokenizer(str(out / "tokenizer.json"), end_of_document=None, field="F")
    assert meta.tokenizer == trained.identity == loaded.identity
    assert meta.end_of_document == trained.end_of_document == loaded.end_of_document
    wanted = [t for text in TEXTS for t in [*trained.encode(text).tolist(), trained.end_of_document]]
    assert open_token_file(str(out), field="F").tokens.tolist() == wanted
    assert loaded.encode(TEXTS[7]).tolist() == trained.encode(TEXTS[7]).tolist()


def test_large_vocabularies_take_four_bytes(source: Path, tmp_path: Path) -> None:
    path = word_tokenizer(tmp_path / "t.json", 70_000)
    meta = prepare.prepare(request(source, tmp_path / "out", tokenizer=str(path)))
    assert (meta.dtype, meta.vocab_size, meta.end_of_document) == ("uint32", 70_000, 69_999)
    tokens = open_token_file(str(tmp_path / "out"), field="F").tokens
    assert tokens.max() == 69_999
    assert (tokens == 69_999).sum() == len(TEXTS)


def word_tokenizer(path: Path, size: int, end: str = "</s>") -> Path:
    """Words by number, all unknown but one; the last id ends documents."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    words = {"document": 0, "<unk>": 1, **{f"w{i}": i for i in range(2, size - 1)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken(end)])
    tokenizer.save(str(path))
    return path


def test_the_name_of_the_end_token_inside_a_text_is_text(tmp_path: Path) -> None:
    tokenizer = FileTokenizer(str(word_tokenizer(tmp_path / "t.json", 10)), end_of_document=None, field="F")
    assert tokenizer.end_of_document not in tokenizer.encode("document </s> document")
    assert tokenizer.end_of_document not in BytesTokenizer().encode("ÿ\x00" * 5)


def test_an_end_token_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = str(word_tokenizer(tmp_path / "t.json", 10, end="<stop>"))
    with pytest.raises(ValueError, match=r"F: .* has none of <\|endoftext\|>, .*name the token"):
        FileTokenizer(path, end_of_document=None, field="F")
    with pytest.raises(ValueError, match=r"F: .* has no token '<end>'"):
        FileTokenizer(path, end_of_document="<end>", field="F")
    assert FileTokenizer(path, end_of_document="<stop>", field="F").end_of_document == 9


def test_bad_lines_fail_with_their_place_or_are_counted(source: Path, tmp_path: Path) -> None:
    with source.open("a") as stream:
        stream.write('{"text": \n{"text": ""}\n')
    with pytest.raises(SourceError, match=rf"SOURCE: .*a\.jsonl, line {len(TEXTS) + 1} is no JSON"):
        prepare.prepare(request(source, tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    meta = prepare.prepare(request(source, tmp_path / "other", skip_bad=True))
    assert (meta.skipped_lines, meta.empty_documents) == (1, 1)
    assert_holds(tmp_path / "other", TEXTS)


def test_other_sources_or_options_do_not_mix(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "out.preparing").mkdir()
    plan = prepare.make_plan(request(source, out))
    prepare._agree(tmp_path / "out.preparing", plan)
    with pytest.raises(PreparationError, match="unfinished preparation with other --text-field"):
        prepare.prepare(request(source, out, text_field="body"))
    prepare.prepare(request(source, out))
    with pytest.raises(PreparationError, match=r"--out: .* holds the tokens of other sources or options"):
        prepare.prepare(request(source, out, text_field="body"))


def test_a_directory_with_something_else_is_left_alone(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(PreparationError, match=r"--out: .* holds something else"):
        prepare.prepare(request(source, out))
    assert contents(out) == {"thesis.tex": b"years of work"}


def test_nothing_to_prepare_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n\n")
    with pytest.raises(PreparationError, match="SOURCE: no document holds any text"):
        prepare.prepare(request(tmp_path / "a.jsonl", tmp_path / "out"))


COMMAND = """
import sys
from pathlib import Path
from actors.training.data import documents, prepare
documents.SHARD_BYTES = 2000
prepare.prepare(prepare.Request((sys.argv[1],), Path(sys.argv[2]), workers=int(sys.argv[3])))
"""


def start(source: Path, out: Path, workers: int = 1) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", COMMAND, str(source), str(out), str(workers)])


def eventually(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within 60 s"
        time.sleep(0.005)


def test_killed_and_run_again_it_keeps_what_is_finished(source: Path, tmp_path: Path) -> None:
    source.write_text(source.read_text() * 30)
    out, shards = tmp_path / "out", tmp_path / "out.preparing" / "shards"
    first = start(source, out)
    eventually("some shards are finished", lambda: len(list(shards.glob("*.json"))) >= 3)
    first.kill()
    first.wait()
    kept = {path: path.stat().st_mtime_ns for path in shards.glob("*.json")}
    claims = list((tmp_path / "out.preparing" / "claims").glob("*.claim"))
    assert not out.exists()
    assert kept
    assert claims, "it was killed at work"
    touched: dict[Path, int] = {}

    def watch(progress: Progress) -> None:
        if progress.stage == "putting together":
            touched.update({path: path.stat().st_mtime_ns for path in kept})

    prepare.prepare(request(source, out), watch)
    assert touched == kept
    assert_holds(out, TEXTS * 30)


def test_several_at_once_share_the_work_and_agree(source: Path, tmp_path: Path) -> None:
    source.write_text(source.read_text() * 5)
    out = tmp_path / "out"
    both = [start(source, out) for _ in range(3)]
    assert [process.wait(120) for process in both] == [0, 0, 0]
    assert_holds(out, TEXTS * 5)
    assert not (tmp_path / "out.preparing").exists()


def test_a_worker_that_dies_is_told_and_nothing_is_lost(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from actors.training.data import crew

    begin = crew.start_worker

    def start_and_kill(setup: Any) -> subprocess.Popen[str]:
        process = begin(setup)
        os.kill(process.pid, signal.SIGKILL)
        return process

    monkeypatch.setattr(crew, "start_worker", start_and_kill)
    with pytest.raises(
        PreparationError, match=r"a worker died on '.*a\.jsonl' \(signal 9\); if memory ran out"
    ):
        prepare.prepare(request(source, tmp_path / "out"))
    monkeypatch.undo()
    monkeypatch.setattr(documents, "SHARD_BYTES", 2000)
    prepare.prepare(request(source, tmp_path / "out"))
    assert_holds(tmp_path / "out", TEXTS)


def test_a_claim_is_one_participants_until_it_is_released(tmp_path: Path) -> None:
    a, b = Claims(tmp_path), Claims(tmp_path)
    try:
        assert a.take("x")
        assert not b.take("x")
        a.release("x")
        assert b.take("x")
        a.release("x")  # not a's
        assert not a.take("x")
    finally:
        a.close()
        b.close()
    assert list(tmp_path.glob("*.claim")) == []


def test_a_claim_of_another_machine_is_taken_over_a_lease_after_its_last_renewal(tmp_path: Path) -> None:
    path, now = tmp_path / "x.claim", [0.0]
    path.write_text("elsewhere:boot:1 77 owner")
    claims = Claims(tmp_path, lease_s=30.0, clock=lambda: now[0])
    try:
        for second, renewed, taken in ((0, False, False), (29, False, False), (29, True, False),
                                       (58, False, False), (60, False, True)):  # fmt: skip
            now[0] = second
            if renewed:
                os.utime(path, ns=(1, 1))
            assert claims.take("x") is taken, second
    finally:
        claims.close()


def test_what_is_held_is_renewed(tmp_path: Path) -> None:
    claims = Claims(tmp_path, lease_s=0.06)
    try:
        assert claims.take("x")
        os.utime(tmp_path / "x.claim", ns=(1, 1))
        eventually("it is renewed", lambda: (tmp_path / "x.claim").stat().st_mtime_ns > 1)
    finally:
        claims.close()


def test_a_claim_of_a_dead_process_of_this_machine_is_taken_over_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, os, pathlib; from actors.training.data.claims import Claims; "
        "assert Claims(pathlib.Path(sys.argv[1])).take('x'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert (tmp_path / "x.claim").exists()
    claims = Claims(tmp_path)
    try:
        assert claims.take("x")
    finally:
        claims.close()


def test_a_damaged_directory_names_its_file(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare.prepare(request(source, out))
    with (out / "tokens.bin").open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(SourceError, match=r"F: '.*tokens\.bin' has \d+ bytes, must have \d+: it is damaged"):
        open_token_file(str(out), field="F")
    (out / "tokens.bin").unlink()
    with pytest.raises(SourceError, match=r"F: no file '.*tokens\.bin' on this node, which meta\.json names"):
        open_token_file(str(out), field="F")
    (out / "meta.json").write_text("{}")
    with pytest.raises(SourceError, match=r"F: '.*meta\.json' is no description of prepared tokens"):
        open_token_file(str(out), field="F")


def test_mapped_tokens_stay_when_their_files_are_deleted(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare.prepare(request(source, out))
    file = open_token_file(str(out), field="F")
    for path in out.iterdir():
        path.unlink()
    wanted = b"".join(text.encode() + b"\xff" for text in TEXTS)
    assert file.tokens.astype(np.uint8).tobytes() == wanted
    with pytest.raises(SourceError, match=r"F: no file '.*meta\.json' on this node"):
        open_token_file(str(out), field="F")


def test_shard_files_are_named_by_their_number() -> None:
    assert shard_file(Path("/w"), 12, "json") == Path("/w/000012.json")


def test_meta_is_strict() -> None:
    with pytest.raises(ValueError, match="extra"):
        TokenMeta.model_validate({"extra": 1})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokens": -1}, "tokens: Input should be greater than or equal to 0"),
        ({"vocab_size": 0}, "vocab_size: Input should be greater than 0"),
        ({"end_of_document": 256}, "end_of_document 256 is no id below 256"),
    ],
)
def test_numbers_that_cannot_be_are_named(
    source: Path, tmp_path: Path, change: dict[str, int], said: str
) -> None:
    meta = prepare.prepare(request(source, tmp_path / "out")).model_dump(mode="json")
    (tmp_path / "out" / "meta.json").write_text(json.dumps(meta | change))
    with pytest.raises(
        SourceError, match=rf"F: '.*meta\.json' is no description of prepared tokens .*{said}"
    ):
        open_token_file(str(tmp_path / "out"), field="F")


def test_a_full_disk_leaves_no_half_result_and_the_next_run_goes_on(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, folder: Path, kind: str, shards: int) -> str:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    asked = request(source, tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setattr(assembly, "_join", full)
        with pytest.raises(PreparationError, match=r"--out: .*out\.preparing.*No space left"):
            prepare.prepare(asked)
    assert not list(asked.work.glob("out-*"))
    prepare.prepare(asked)
    assert_holds(tmp_path / "out", TEXTS)


def test_what_a_kill_after_the_result_left_is_removed(source: Path, tmp_path: Path) -> None:
    asked = request(source, tmp_path / "out")
    meta = prepare.prepare(asked)
    (asked.work / "shards").mkdir(parents=True)
    assert prepare.prepare(asked) == meta
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == ["out"]


def test_a_worker_that_cannot_write_names_the_option(source: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    setup = setup_document(gone, request(source, gone).rules, None, None, "uint16")
    [shard, *_] = prepare.make_plan(request(source, gone)).shards
    worker = start_worker(setup)
    answer, _ = worker.communicate(
        json.dumps({"index": 0, "shard": shard_document(shard)}) + "\n", timeout=60
    )
    assert json.loads(answer) == {"error": f"--out: '{gone}' cannot be written: No such file or directory"}
