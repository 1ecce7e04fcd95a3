"""Numbers that a fabric does not have are filled in such that nearer tiers stay the better ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.placement.tariff import DEFAULTS, tariff_of
from orchestrator.spec.sections import Tier
from orchestrator.topology.links import Link

NODES_IN_SPINES = (Tier.ISLAND, Tier.NODE, Tier.LEAF, Tier.SPINE, Tier.CORE)
RACKS = (Tier.NODE, Tier.ISLAND, Tier.LEAF, Tier.SPINE, Tier.CORE)


def test_a_fabric_without_numbers_has_the_defaults() -> None:
    tariff = tariff_of({}, NODES_IN_SPINES)
    assert tariff.levels == (*NODES_IN_SPINES, Tier.ANY)
    assert list(zip(tariff.bandwidth, tariff.latency_s, strict=True)) == [
        pytest.approx(DEFAULTS[tier]) for tier in tariff.levels
    ]
    assert set(tariff.uplink) == {None}


def test_a_slow_leaf_makes_wider_tiers_slower_and_leaves_nearer_ones_alone() -> None:
    """Leaf at 1 GB/s: the spine is half of it by default, as 25 is of 50; NVLink is what it is."""
    tariff = tariff_of({Tier.LEAF: Link(bandwidth=1e9, latency_s=8e-4)}, NODES_IN_SPINES)
    by_tier = dict(zip(tariff.levels, tariff.bandwidth, strict=True))
    assert by_tier[Tier.SPINE] == pytest.approx(0.5e9)
    assert by_tier[Tier.ISLAND] == 450e9
    assert tariff.latency_s[3] == pytest.approx(8e-4 * 11 / 8)


def test_a_fast_spine_makes_nearer_tiers_at_least_as_fast() -> None:
    tariff = tariff_of({Tier.SPINE: Link(bandwidth=100e9)}, NODES_IN_SPINES)
    by_tier = dict(zip(tariff.levels, tariff.bandwidth, strict=True))
    assert by_tier[Tier.LEAF] == pytest.approx(100e9)
    assert by_tier[Tier.ISLAND] == 450e9


def test_in_an_island_of_many_nodes_a_node_is_joined_as_the_island() -> None:
    links = {
        Tier.ISLAND: Link(bandwidth=900e9, latency_s=1e-6),
        Tier.NODE: Link(bandwidth=10e9, latency_s=1e-3),
    }
    tariff = tariff_of(links, RACKS)
    assert tariff.bandwidth[:2] == (900e9, 900e9)
    assert tariff.latency_s[:2] == pytest.approx((1e-6, 1e-6))


@given(
    st.sampled_from([NODES_IN_SPINES, RACKS]),
    st.lists(st.sampled_from(list(Tier)), unique=True, max_size=3),
    st.lists(st.floats(1e6, 1e13), min_size=3, max_size=3),
)
def test_known_numbers_in_order_keep_the_order_of_all(
    levels: tuple[Tier, ...], tiers: list[Tier], numbers: list[float]
) -> None:
    known = zip(sorted(tiers, key=list(Tier).index), sorted(numbers, reverse=True), strict=False)
    tariff = tariff_of({tier: Link(bandwidth=n, latency_s=1 / n) for tier, n in known}, levels)
    assert all(near >= far * (1 - 1e-9) for near, far in pairwise(tariff.bandwidth))
    assert all(near <= far * (1 + 1e-9) for near, far in pairwise(tariff.latency_s))
