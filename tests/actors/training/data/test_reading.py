"""Files, documents and what is wrong with them."""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path

import pytest

from actors.training.data import documents
from actors.training.data.documents import (
    Piece,
    ReadingRules,
    Shard,
    Skipped,
    document_hash,
    plan_shards,
    read_pieces,
)
from actors.training.data.files import SourceError, SourceFile, find_files, format_of
from orchestrator.spec.sections import SourceFormat

FAIL = ReadingRules("text", skip_bad=False, max_bytes=1 << 20, field="data.sources.0.path")
SKIP = ReadingRules("text", skip_bad=True, max_bytes=1 << 20, field="data.sources.0.path")


def pieces(path: Path, rules: ReadingRules = FAIL, skipped: Skipped | None = None) -> list[Piece]:
    counted = skipped or Skipped()
    found = []
    for file in find_files(str(path), field=rules.field):
        for shard in plan_shards(file, format_of(file.path, SourceFormat.AUTO), rules):
            found += read_pieces(shard, rules, counted)
    return found


def jsonl(path: Path, *texts: str) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def test_formats_by_name(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{}")
    names = ["/a.jsonl", "/a.ndjson", "s3://b/a.parquet", "/a.txt", str(tmp_path), "http://h/a"]
    assert [format_of(name, SourceFormat.AUTO).value for name in names] == [
        "jsonl",
        "jsonl",
        "parquet",
        "text",
        "tokens",
        "text",
    ]
    assert format_of("/a.txt", SourceFormat.JSONL) is SourceFormat.JSONL


def test_a_star_names_files_in_order_and_nothing_is_an_error(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.md"):
        (tmp_path / name).write_text(name)
    assert [p.text for p in pieces(tmp_path / "*.txt")] == ["a.txt", "b.txt"]
    with pytest.raises(SourceError, match=r"data\.sources\.0\.path: no file matches '.*\.log'"):
        pieces(tmp_path / "*.log")


@pytest.mark.parametrize("name", ["gone.txt", "gone.jsonl"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match=rf"data\.sources\.0\.path: no file '.*{name}'"):
        pieces(tmp_path / name)


def test_a_directory_that_is_not_prepared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"is a directory without the meta\.json"):
        pieces(tmp_path)


def test_a_text_file_is_one_document(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\ntwo\n\nthree")
    assert pieces(path) == [Piece("one\r\ntwo\n\nthree", True, True)]


@pytest.mark.parametrize("name", ["empty.txt", "empty.jsonl"])
def test_an_empty_file_has_no_documents(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    assert pieces(tmp_path / name) == []


def test_jsonl_lines_are_documents_blank_lines_none(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"text": "a"}\n\n  \n{"text": "Gr\xc3\xb6\xc3\x9fe", "n": 1}\r\n{"text": ""}\n{"text": "z"}'
    )
    skipped = Skipped()
    assert [p.text for p in pieces(path, FAIL, skipped)] == ["a", "Größe", "z"]
    assert (skipped.lines, skipped.empty_documents) == (0, 1)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"text": "a"', "is no JSON: "),
        (b"[1, 2]", "is no JSON object"),
        (b'{"txt": "a"}', r"has no field 'text' \(it has txt\)"),
        (b'{"text": 7}', "has a 'text' that is int, not text"),
        (b'{"text": "\\ud800"}', "has half a surrogate pair"),
        (b'{"text": "\xf6"}', "is not UTF-8: byte 0xf6 at byte 11 of the line"),
        (b'{"text": "' + b"x" * (1 << 20) + b'"}', "is longer than 1 MiB"),
        (b"[" * 100_000, "is nested too deeply|is no JSON"),
        (b'{"text": ' + b"1" * 5000 + b"}", "holds an integer of thousands of digits"),
    ],
)
def test_a_bad_line_is_named_or_counted(tmp_path: Path, line: bytes, problem: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "first"}\n{"text": "second"}\n' + line + b'\n{"text": "last"}\n' + line)
    with pytest.raises(SourceError, match=rf"data\.sources\.0\.path: .*a\.jsonl, line 3 ({problem})"):
        pieces(path)
    skipped = Skipped()
    assert [p.text for p in pieces(path, SKIP, skipped)] == ["first", "second", "last"]
    assert skipped.lines == 2
    assert "line 3 " in skipped.first


def test_a_huge_line_of_text_takes_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with path.open("wb") as stream:
        stream.write(b"before\n")
        for _ in range(64):
            stream.write(b"x" * (1 << 20))
        stream.write(b"\nafter\n")

    skipped = Skipped()
    tracemalloc.start()
    found = pieces(path, SKIP, skipped)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "".join(p.text for p in found) == "before\nafter\n"
    assert skipped.lines == 1
    assert peak < 24 << 20  # read-ahead of 4 MiB and a line of 1 MiB, not the 64 MiB of the line
    with pytest.raises(SourceError, match="line 2 is longer than 1 MiB; break it up or allow longer"):
        pieces(path)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\nGr\xf6\xdfe\n")
    with pytest.raises(SourceError, match=r"a\.txt, line 2 is not UTF-8: byte 0xf6 at byte 3 of the line"):
        pieces(path)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 16, 64, 1000])
def test_shards_of_any_size_read_every_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    texts = ["", "a", "bb" * 9, "größe", "x" * 40, "end"]
    lines = jsonl(tmp_path / "a.jsonl", *texts)
    plain = tmp_path / "a.txt"
    plain.write_text("\n".join(texts))
    monkeypatch.setattr(documents, "SHARD_BYTES", size)
    assert [p.text for p in pieces(lines)] == [text for text in texts if text]
    found = pieces(plain)
    assert "".join(p.text for p in found) == plain.read_text()
    assert [p.starts for p in found] == [True] + [False] * (len(found) - 1)
    assert [p.ends for p in found] == [False] * (len(found) - 1) + [True]


def test_a_bad_line_of_a_later_shard_has_its_number_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = jsonl(tmp_path / "a.jsonl", *["word"] * 50)
    with path.open("a") as stream:
        stream.write("{\n")
    monkeypatch.setattr(documents, "SHARD_BYTES", 64)
    with pytest.raises(SourceError, match="line 51 is no JSON"):
        pieces(path)


def test_equal_beginnings_hash_alike_and_others_do_not() -> None:
    assert document_hash("a") == document_hash("a")
    assert document_hash("a") != document_hash("b")
    # sha256("abc") begins ba7816bf 8f01cfea (FIPS 180-2, appendix B.1); the first 8 bytes, little-endian.
    assert document_hash("abc") == int.from_bytes(bytes.fromhex("ba7816bf8f01cfea"), "little")


def test_parquet_rows_are_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    texts = [f"row {i} größe" for i in range(100)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"body": texts, "n": list(range(100))}), path, row_group_size=7)
    rules = ReadingRules("body", skip_bad=False, max_bytes=1 << 20, field="F")
    monkeypatch.setattr(documents, "SHARD_BYTES", 400)
    file = find_files(str(path), field="F")[0]
    shards = plan_shards(file, SourceFormat.PARQUET, rules)
    assert len(shards) > 2
    assert [p.text for s in shards for p in read_pieces(s, rules, Skipped())] == texts
    with pytest.raises(SourceError, match=r"F: .*a\.parquet' has no column 'text'; it has body, n"):
        plan_shards(file, SourceFormat.PARQUET, ReadingRules("text", False, 1, "F"))
    with pytest.raises(SourceError, match=r"column 'n' of .* is int64, not string"):
        plan_shards(file, SourceFormat.PARQUET, ReadingRules("n", False, 1, "F"))


def test_a_parquet_row_without_text_is_named(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", None, "c"]}), path)
    with pytest.raises(SourceError, match=r"a\.parquet, row 2 has a 'text' that is NoneType"):
        pieces(path)
    skipped = Skipped()
    assert [p.text for p in pieces(path, SKIP, skipped)] == ["a", "c"]
    assert skipped.lines == 1


def test_a_parquet_file_with_two_columns_of_the_name_is_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    column = pyarrow.array(["a"])
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_arrays([column, column], names=["text", "text"]), path)
    with pytest.raises(SourceError, match=r"a\.parquet' has several columns 'text'"):
        pieces(path)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(b"PAR?" * 30)
    with pytest.raises(SourceError, match=r"a\.parquet' is no Parquet file"):
        pieces(tmp_path / "a.parquet")


def test_parquet_without_pyarrow_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SourceError, match=r"need the package pyarrow: install atoll\[parquet\]"):
        pieces(tmp_path / "a.parquet")


def test_s3_without_s3fs_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(SourceError, match=r"F: 's3://bucket/a\.jsonl' needs .*: install atoll\[s3\]"):
        find_files("s3://bucket/a.jsonl", field="F")


def test_a_source_deleted_before_it_is_read_again_is_named(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", "a")
    shard = Shard(SourceFile(str(path), path.stat().st_size, True), SourceFormat.JSONL, 0, None)
    assert len(list(read_pieces(shard, FAIL, Skipped()))) == 1
    path.unlink()
    with pytest.raises(SourceError, match=r"'.*a\.jsonl' cannot be read: No such file"):
        list(read_pieces(shard, FAIL, Skipped()))


def test_a_file_that_is_cut_off_while_it_is_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole lines that are gone leave nothing wrong behind: without a look at the size they are missed in silence."""
    monkeypatch.setattr(documents, "SHARD_BYTES", 64)
    path = jsonl(tmp_path / "a.jsonl", *("x" * 20 for _ in range(20)))
    [file] = find_files(str(path), field="F")
    shards = plan_shards(file, SourceFormat.JSONL, SKIP)
    line = path.stat().st_size // 20
    with path.open("r+b") as stream:
        stream.truncate(10 * line)
    kept = [shard for shard in shards if shard.end is not None and shard.end <= 10 * line]
    assert [len(list(read_pieces(shard, SKIP, Skipped()))) for shard in kept] == [2] * len(kept)
    for shard in shards[len(kept) :]:
        with pytest.raises(SourceError, match=rf"a\.jsonl' was cut off .* had {20 * line} bytes"):
            list(read_pieces(shard, SKIP, Skipped()))


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("F: 'https://me:word@h/a b?key=1' is gone", "F: 'https://h/a b' is gone"),
        ("F: 404, url='s3://k:s@b/a?x=1': no", "F: 404, url='s3://b/a': no"),
        ("F: http://h/a?key=1 is gone", "F: http://h/a is gone"),
        ("F: '/data/a?b.txt' is gone", "F: '/data/a?b.txt' is gone"),
    ],
)
def test_messages_show_no_keys_of_urls(said: str, shown: str) -> None:
    assert str(SourceError(said)) == shown
