"""Figures of a plan, for people: never an exponent, never 0.0 for something."""

from __future__ import annotations

import pytest

from atoll.cli.cost import hours_text, seconds_text
from atoll.cli.output import size_text, tokens_text


@pytest.mark.parametrize(
    ("size_bytes", "said"),
    [
        (0, "0"),
        (900, "900 B"),
        (1024, "1.0 KiB"),
        (12.5 * 2**20, "12.5 MiB"),
        (1023.99 * 2**10, "1.0 MiB"),
        (2**30 - 1, "1.0 GiB"),
        (75.2 * 2**30, "75.2 GiB"),
        (3072 * 2**30, "3,072.0 GiB"),
    ],
)
def test_sizes(size_bytes: float, said: str) -> None:
    assert size_text(size_bytes) == said


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (1, "1 token"),
        (61_440, "61,440 tokens"),
        (9_999_999, "9,999,999 tokens"),
        (10_240_000, "10.2 million tokens"),
        (999.9e6, "1 billion tokens"),
        (300e9, "300 billion tokens"),
        (15.6e12, "15.6 trillion tokens"),
        (2e15, "2,000 trillion tokens"),
    ],
)
def test_tokens(tokens: float, said: str) -> None:
    assert tokens_text(tokens) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (4.5e-6, "4.5 us"),
        (999.9e-6, "1 ms"),
        (0.0123, "12.3 ms"),
        (0.9999, "1 s"),
        (4.56, "4.56 s"),
        (119.6, "120 s"),
        (7_500, "2 h 5 min"),
    ],
)
def test_seconds(seconds: float, said: str) -> None:
    assert seconds_text(seconds) == said


@pytest.mark.parametrize(
    ("gpu_hours", "said"),
    [
        (0.0, "less than 0.001 GPU-hours"),
        (0.0129, "0.0129 GPU-hours"),
        (12.34, "12.3 GPU-hours"),
        (99.97, "100 GPU-hours"),
        (30_840_000, "30,840,000 GPU-hours"),
    ],
)
def test_gpu_hours(gpu_hours: float, said: str) -> None:
    assert hours_text(gpu_hours) == said
