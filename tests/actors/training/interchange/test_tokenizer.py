"""Exported tokenizers give the ids that training used, in the `tokenizers` library itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from actors.training.data.tokenizer import BpeTokenizer, BytesTokenizer, FileTokenizer
from actors.training.interchange.names import TOKENIZER_NAME
from actors.training.interchange.tokenizer import job_tokenizer, write_tokenizer
from orchestrator.spec.sections import DataSpec

LEARNED = (
    "def f(x):\n    return  x \n\n\n  # two  spaces \r\n\ttabs\t\t\n" * 20 + "naïve café\u2028\x85日本\n" * 20
)
SPACES = " \n\r\t\x0b\x0c\x1c\x85\u2028"


@pytest.fixture(scope="module")
def bpe() -> BpeTokenizer:
    return BpeTokenizer(LEARNED, 400)


@pytest.fixture(scope="module")
def written(bpe: BpeTokenizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    found = {}
    for name, tokenizer in (("bpe", bpe), ("bytes", BytesTokenizer())):
        folder = tmp_path_factory.mktemp(name)
        write_tokenizer(folder, tokenizer, positions=64)
        found[name] = Tokenizer.from_file(str(folder / TOKENIZER_NAME))
    return found


@given(st.lists(st.one_of(st.text(SPACES, max_size=4), st.text("defx(): #日é", max_size=5))).map("".join))
@settings(max_examples=200, deadline=None)
def test_the_same_ids(bpe: BpeTokenizer, written: dict[str, Tokenizer], text: str) -> None:
    assert written["bpe"].encode(text).ids == bpe.encode(text).tolist()
    assert written["bytes"].encode(text).ids == list(text.encode())
    assert written["bytes"].decode(list(text.encode())) == text


def test_a_tokenizer_file_is_written_as_it_is(bpe: BpeTokenizer, tmp_path: Path) -> None:
    """One that training encoded line by line is made to do so itself."""
    saved = tmp_path / "saved.json"
    saved.write_text(bpe.serialized(), "utf-8")
    tokenizer = FileTokenizer(str(saved), end_of_document=None, field="data.tokenizer_file")
    write_tokenizer(tmp_path, tokenizer, positions=64)
    text = "x \n\n  y\n"
    assert Tokenizer.from_file(str(tmp_path / TOKENIZER_NAME)).encode(text).ids == bpe.encode(text).tolist()
    assert (
        job_tokenizer(
            DataSpec(tokenizer="file", tokenizer_file=str(saved), vocab_size=400), identity=bpe.identity
        ).identity
        == bpe.identity
    )


def test_a_job_finds_its_tokenizer_again(tmp_path: Path) -> None:
    """Trained on the training part alone, from the one source or from several."""
    text = "".join(f"line {number} of text\n" for number in range(300)) + "held back words\n" * 12
    (tmp_path / "text.txt").write_text(text)
    path = str(tmp_path / "text.txt")
    one = DataSpec(source=path, tokenizer="bpe", vocab_size=300)
    expected = BpeTokenizer(text[: len(text) - round(len(text) * one.holdout_fraction)], 300).identity
    assert job_tokenizer(one, identity=None).identity == expected
    several = DataSpec.model_validate({"sources": [{"path": path}], "tokenizer": "bpe", "vocab_size": 300})
    assert job_tokenizer(several, identity=expected).identity == expected
    assert job_tokenizer(DataSpec(), identity="bytes").identity == "bytes"


def test_what_was_exported_is_trained_with_again(bpe: BpeTokenizer, tmp_path: Path) -> None:
    """Nobody has to name the token that ends a document: it is the one that training used."""
    for tokenizer in (bpe, BytesTokenizer()):
        write_tokenizer(tmp_path, tokenizer, positions=64)
        again = FileTokenizer(
            str(tmp_path / TOKENIZER_NAME), end_of_document=None, field="data.tokenizer_file"
        )
        assert again.end_of_document == tokenizer.end_of_document
        assert again.encode("x \n\n  y\n").tolist() == tokenizer.encode("x \n\n  y\n").tolist()


def test_a_tokenizer_of_another_text_is_not_taken_for_the_jobs(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("one text and no other\n" * 100)
    spec = DataSpec(source=str(path), tokenizer="bpe", vocab_size=300)
    trained = job_tokenizer(spec, identity=None).identity
    path.write_text("now it is another one\n" * 100)
    with pytest.raises(ValueError, match=r"data\.tokenizer: what it is made from has changed"):
        job_tokenizer(spec, identity=trained)
