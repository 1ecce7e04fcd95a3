"""Emulated networks, where this user may make them."""

from __future__ import annotations

import pytest

from benchmarks.fabric.network import why_not


@pytest.fixture
def root() -> None:
    if reason := why_not():
        pytest.skip(f"no emulated network here: {reason}")
