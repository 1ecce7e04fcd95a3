"""Collectives: formulas by hand, and sweeps that others measured."""

from __future__ import annotations

import pytest

from orchestrator.estimate.communication import all_reduce_s, all_to_all_s, exposed_s, gather_s, send_s
from orchestrator.estimate.hardware import Path, accelerators, link_classes

PLAIN = Path(bandwidth=1e9, latency_s=1e-3)


def test_ring_and_tree() -> None:
    # 4 ranks, 1 GB: ring 6 steps and 1.5 GB, tree 4 steps and 2 GB.
    assert all_reduce_s(PLAIN, 1e9, 4) == pytest.approx(6e-3 + 1.5)
    # 1 kB over 1,024 ranks: the tree's 20 steps beat the ring's 2,046.
    assert all_reduce_s(PLAIN, 1e3, 1024) == pytest.approx(20e-3 + 2e-6)
    assert gather_s(PLAIN, 1e9, 4) == pytest.approx(3e-3 + 0.75)
    assert all_to_all_s(PLAIN, 1e9, 4) == pytest.approx(3e-3 + 0.75)
    assert send_s(PLAIN, 1e9) == pytest.approx(1e-3 + 1)


def test_one_rank_and_nothing_cost_nothing() -> None:
    assert all_reduce_s(PLAIN, 1e9, 1) == gather_s(PLAIN, 1e9, 1) == all_reduce_s(PLAIN, 0, 4) == 0
    assert send_s(PLAIN, 0) == 0


@pytest.mark.parametrize(
    ("mib", "microseconds"),
    [(32, 424.0), (64, 684.6), (128, 1327.6), (512, 4218.4), (1024, 8203.9), (16384, 127_997)],
)
def test_all_reduce_on_eight_a100(mib: int, microseconds: float) -> None:
    """ml-engineering (Bekman), network/README.md: nccl-tests on one node. Saturation alone was taken from it."""
    found = all_reduce_s(link_classes()["nvlink3"], mib * 2**20, 8)
    assert found * 1e6 == pytest.approx(microseconds, rel=0.15)


def test_hidden_communication_still_takes_units() -> None:
    """24 of 108 units carry it, so a second behind two seconds of products costs 24/108 of a second."""
    device = accelerators()["A100-SXM-80GB"]
    assert exposed_s(device, 1.0, 2.0) == pytest.approx(24 / 108)
    assert exposed_s(device, 3.0, 2.0) == pytest.approx(1 + 2 * 24 / 108)
    assert exposed_s(device, 1.0, 0.0) == 1.0
