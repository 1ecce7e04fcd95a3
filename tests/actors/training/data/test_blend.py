"""Blends: exact shares, no repetition, the same for any number of replicas."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.training.data.blend import Blend, TokenStream, exact_weight, take_turns
from actors.training.data.files import SourceError
from actors.training.data.order import SequenceOrder, held_back_sequences
from actors.training.data.shuffle import Shuffle

WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=6).map(lambda ws: [exact_weight(w) for w in ws])


def stream(first: int, count: int, *, pieces: int = 1) -> TokenStream:
    """Tokens first, first + 1, ...; in `pieces` ranges of an array with gaps of zeros between."""
    tokens, begins, ends = [], [], []
    for part in np.array_split(np.arange(first, first + count), pieces):
        tokens += [0, 0]
        begins.append(len(tokens))
        tokens += part.tolist()
        ends.append(len(tokens))
    return TokenStream(
        np.array(tokens, np.uint16), np.array(begins), np.array(ends), name="S", vocab_size=60_000
    )


@settings(max_examples=100, deadline=None)
@given(weights=WEIGHTS, first=st.integers(0, 10**9), count=st.integers(1, 30))
def test_shares_stay_within_the_bound_wherever_one_looks(
    weights: list[Fraction], first: int, count: int
) -> None:
    total = sum(weights)
    taken = [0] * len(weights)
    for source, index in take_turns(weights, first, count):
        taken[source] = index + 1
    for source, weight in enumerate(weights):
        share = weight / total
        if taken[source]:  # its last turn was among these
            ideal = share * (first + count)
            slack = (1 + share * len(weights)) / 2
            assert ideal - slack - count * share <= taken[source] <= ideal + slack + 1


@settings(max_examples=60, deadline=None)
@given(weights=WEIGHTS, first=st.integers(0, 3000), count=st.integers(1, 40))
def test_a_turn_depends_on_its_number_alone(weights: list[Fraction], first: int, count: int) -> None:
    from_the_start = take_turns(weights, 0, first + count)
    assert take_turns(weights, first, count) == from_the_start[first:]
    for source in range(len(weights)):
        indices = [index for s, index in from_the_start if s == source]
        assert indices == list(range(len(indices)))


def test_a_large_source_among_many_small_ones() -> None:
    """Small ones are all due at 0.5 / 0.0051 = 98.04, before turn 93 of the large one at 93.5 / 0.949 = 98.5: of the
    first 103 turns it has 93, four less than the whole part of its share."""
    weights = [exact_weight(w) for w in (94.9, *[0.51] * 10)]
    from_the_start = take_turns(weights, 0, 110)
    assert Counter(source for source, _ in from_the_start[:103])[0] == 93
    for first in range(94, 110):
        assert take_turns(weights, first, 110 - first) == from_the_start[first:]


def test_whole_shares_are_exact() -> None:
    weights = [exact_weight(w) for w in (0.1, 0.2, 0.7)]
    for n in range(10, 200, 10):
        counts = Counter(source for source, _ in take_turns(weights, 0, n))
        assert counts == {0: n // 10, 1: n // 5, 2: 7 * n // 10}


def test_a_stream_reads_across_its_ranges() -> None:
    parts = stream(100, 50, pieces=7)
    assert len(parts) == 50
    for start in range(50):
        for count in range(50 - start + 1):
            assert parts.read(start, count).tolist() == list(range(100 + start, 100 + start + count))


def test_a_token_outside_the_vocabulary_is_damage() -> None:
    broken = TokenStream(np.array([1, 2, 999]), np.array([0]), np.array([3]), name="S", vocab_size=256)
    assert broken.read(0, 2).tolist() == [1, 2]
    with pytest.raises(SourceError, match=r"S: holds the token 999, but data\.vocab_size is 256"):
        broken.read(0, 3)


@settings(max_examples=40, deadline=None)
@given(replicas=st.sampled_from([1, 2, 4, 8]), step=st.integers(0, 100), seed=st.integers(0, 2**62))
def test_replicas_together_read_what_one_would(replicas: int, step: int, seed: int) -> None:
    blend = Blend((stream(1, 97), stream(1000, 41, pieces=3)), (Fraction(3), Fraction(1)))

    def order() -> SequenceOrder:
        return SequenceOrder(blend, sequence_length=4, global_batch=8, seed=seed)

    whole, targets = order().batch(step, replica=0, replicas=1)
    split = [order().batch(step, replica=r, replicas=replicas)[0] for r in range(replicas)]
    assert torch.equal(torch.cat(split), whole)
    assert torch.equal(targets, whole + 1)


def test_no_window_comes_twice_in_an_epoch_of_its_source() -> None:
    blend = Blend((stream(1, 97), stream(1000, 41)), (Fraction(1), Fraction(3)))
    order = SequenceOrder(blend, sequence_length=4, global_batch=8, seed=7)
    first = [int(row[0]) for step in range(40) for row in order.batch(step, replica=0, replicas=1)[0]]
    small = [token for token in first if token >= 1000]
    large = [token for token in first if token < 1000]
    assert (len(small), len(large)) == (240, 80)
    assert order.windows == 24 + 10
    for epoch in range(24):
        assert sorted(small[epoch * 10 : epoch * 10 + 10]) == list(range(1000, 1040, 4))
    for epoch in range(3):
        assert sorted(large[epoch * 24 : epoch * 24 + 24]) == list(range(1, 97, 4))


def test_a_blend_of_one_is_read_as_the_text_alone() -> None:
    blend = Blend((stream(1, 400),), (Fraction(1),))
    alone = torch.arange(1, 401, dtype=torch.int32)
    for step in (0, 3, 40):
        found, wanted = (
            SequenceOrder(tokens, sequence_length=8, global_batch=4, seed=5).batch(
                step, replica=0, replicas=1
            )
            for tokens in (blend, alone)
        )
        assert torch.equal(found[0], wanted[0])
        assert torch.equal(found[1], wanted[1])


@pytest.mark.parametrize("windows", [1, 2, 3, 5, 64, 65, 1000])
def test_a_shuffle_without_a_list_is_a_permutation_anew_in_each_epoch(windows: int) -> None:
    shuffle = Shuffle(windows, 3, listed=0)
    epochs = [[shuffle.window(e * windows + i) for i in range(windows)] for e in (0, 1)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(windows))
    if windows >= 64:
        assert epochs[0] != epochs[1] != list(range(windows))
        assert [Shuffle(windows, 4, listed=0).window(i) for i in range(windows)] != epochs[0]
        # Neighbours of a random permutation differ by a third of its length on average (Knuth 3.3.2).
        distance = np.abs(np.diff(epochs[0])).mean() / windows
        assert 0.25 < distance < 0.42


def test_held_back_sequences_are_shared_by_weight() -> None:
    blend = Blend(
        (stream(1, 801), stream(1000, 801), stream(3000, 5)), (Fraction(3), Fraction(1), Fraction(4))
    )
    inputs, targets = held_back_sequences(blend, sequence_length=8, at_most=20)
    # The third has no window of 8: the 20 are shared 3 : 1 by the others.
    assert Counter(int(row[0]) // 1000 for row in inputs) == {0: 15, 1: 5}
    assert torch.equal(targets, inputs + 1)


def test_frequencies_are_laplace_of_each_source_mixed_by_weight() -> None:
    a = TokenStream(np.array([0, 0, 1]), np.array([0]), np.array([3]), name="a", vocab_size=3)
    b = TokenStream(np.array([2]), np.array([0]), np.array([1]), name="b", vocab_size=3)
    found = Blend((a, b), (Fraction(1), Fraction(3))).frequencies(3)
    wanted = 0.25 * np.array([3, 2, 1]) / 6 + 0.75 * np.array([1, 1, 2]) / 4
    assert found == pytest.approx(wanted, rel=1e-12)
