"""Text, tokenizers, corpus and order."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.training.data.corpus import Corpus, build_corpus, unigram_loss
from actors.training.data.identity import DataIdentity
from actors.training.data.order import IGNORED, SequenceOrder, held_back_sequences, pad_sequences
from actors.training.data.text import read_text
from actors.training.data.tokenizer import BpeTokenizer, BytesTokenizer
from orchestrator.spec.sections import DataSpec

SENTENCES = "the cat sat on the mat; the bat sat on the hat. Größe, 漢字!\n" * 40


def test_pydoc_is_english_text_and_the_same_every_time() -> None:
    text = read_text("pydoc")
    assert len(text) > 300_000
    assert "the" in Counter(text.split()).keys() - {""}
    assert text == read_text("pydoc")


def test_missing_file_is_named() -> None:
    with pytest.raises(ValueError, match=r"data\.source: no file '/nowhere/x\.txt'"):
        read_text("/nowhere/x.txt")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data\.source: .* cannot be read: Is a directory"):
        read_text(str(tmp_path))


def test_bytes_that_are_not_utf8_are_named_with_their_offset(tmp_path: Path) -> None:
    path = tmp_path / "latin1.txt"
    path.write_bytes("abc Größe".encode("latin-1"))
    with pytest.raises(ValueError, match="not UTF-8: byte 0xf6 at offset 6"):
        read_text(str(path))


@pytest.mark.parametrize(
    ("length", "part", "has"),
    [(100, "training", 50), (1000, "held-back", 50)],
)
def test_too_short_a_text_says_how_many_tokens_are_needed(
    tmp_path: Path, length: int, part: str, has: int
) -> None:
    path = tmp_path / "short.txt"
    path.write_text("x" * length)
    fraction = 0.499999 if part == "training" else has / length
    with pytest.raises(ValueError, match=f"its {part} part has {has} tokens, at least 65 are needed"):
        build_corpus(DataSpec(source=str(path), holdout_fraction=fraction), sequence_length=64)


def test_the_held_back_part_is_the_end_of_the_text() -> None:
    spec = DataSpec(holdout_fraction=0.05)
    corpus = build_corpus(spec, sequence_length=64)
    text = read_text("pydoc")
    tokens = BytesTokenizer()
    ends = tokens.decode(corpus.training.numpy()) + tokens.decode(corpus.held_back.numpy())
    assert ends == text
    assert len(tokens.decode(corpus.held_back.numpy())) == round(0.05 * len(text))


def test_bpe_is_equal_for_equal_text_and_gives_the_text_back() -> None:
    first, second = BpeTokenizer(SENTENCES, 300), BpeTokenizer(SENTENCES, 300)
    assert first.serialized() == second.serialized()
    ids = first.encode(SENTENCES)
    assert first.decode(ids) == SENTENCES
    assert ids.max() < 300
    assert len(ids) < len(SENTENCES.encode())


def test_bpe_reads_bytes_it_was_not_trained_on() -> None:
    unseen = "Ξ☃\x00~"
    assert "Ξ" not in SENTENCES
    tokenizer = BpeTokenizer(SENTENCES, 300)
    assert tokenizer.decode(tokenizer.encode(unseen)) == unseen


def test_bpe_is_trained_on_the_training_part_alone(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("ab" * 500 + "zq" * 100)
    corpus = build_corpus(
        DataSpec(source=str(path), tokenizer="bpe", vocab_size=257, holdout_fraction=1 / 6),
        sequence_length=16,
    )
    assert len(corpus.training) == 500  # the one merge is "ab"
    assert len(corpus.held_back) == 200  # "zq" was never seen


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(9, 400),
    length=st.integers(2, 8),
    share=st.integers(1, 4),
    replicas=st.sampled_from([1, 2, 4]),
    step=st.integers(0, 50),
    seed=st.integers(0, 2**62),
)
def test_row_74_replicas_together_read_what_one_would(
    tokens: int, length: int, share: int, replicas: int, step: int, seed: int
) -> None:
    text = torch.arange(tokens, dtype=torch.int32)
    batch = share * replicas

    def order() -> SequenceOrder:
        return SequenceOrder(text, sequence_length=length, global_batch=batch, seed=seed)

    whole, targets = order().batch(step, replica=0, replicas=1)
    split = [order().batch(step, replica=r, replicas=replicas)[0] for r in range(replicas)]
    assert torch.equal(torch.cat(split), whole)
    assert torch.equal(targets, whole + 1)


def test_an_epoch_reads_every_window_once_and_the_next_in_another_order() -> None:
    order = SequenceOrder(torch.arange(101, dtype=torch.int32), sequence_length=4, global_batch=5, seed=3)
    assert order.windows == 25
    epochs = [
        [int(s[0]) // 4 for step in range(5) for s in order.batch(e * 5 + step, replica=0, replicas=1)[0]]
        for e in (0, 1)
    ]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(25))
    assert epochs[0] != epochs[1]
    assert order.cursor(7) == 35


def test_seeds_give_different_orders() -> None:
    text = torch.arange(1001, dtype=torch.int32)
    first, second = (
        SequenceOrder(text, sequence_length=10, global_batch=100, seed=seed).batch(0, replica=0, replicas=1)[
            0
        ]
        for seed in (1, 2)
    )
    assert not torch.equal(first, second)


def test_padding_does_not_count() -> None:
    inputs, targets = held_back_sequences(torch.arange(50, dtype=torch.int32), sequence_length=8, at_most=100)
    assert inputs.shape == (6, 8)
    padded, wanted = pad_sequences(inputs, targets, multiple=4)
    assert padded.shape == (8, 8)
    assert (wanted[6:] == IGNORED).all()
    assert torch.equal(wanted[:6], targets)


def test_an_evaluation_looks_at_the_whole_held_back_part() -> None:
    # 99 tokens hold 12 windows of 8 and the next token; 4 of them begin at windows 0, 3, 6 and 9.
    inputs, _ = held_back_sequences(torch.arange(99, dtype=torch.int32), sequence_length=8, at_most=4)
    assert inputs[:, 0].tolist() == [0, 24, 48, 72]


def test_unigram_loss_is_the_formula() -> None:
    training, held_back = torch.tensor([0, 0, 0, 1], dtype=torch.int32), torch.tensor([0, 1, 2])
    # Laplace: (3+1)/8, (1+1)/8, (0+1)/8 and (0+1)/8 for the four symbols.
    wanted = -(math.log(4 / 8) + math.log(2 / 8) + math.log(1 / 8)) / 3
    found = unigram_loss(
        Corpus(training, held_back.int(), DataIdentity("bytes", "sha256:")), held_back, vocab_size=4
    )
    assert found == pytest.approx(wanted, rel=1e-12)
    assert np.isfinite(found)
