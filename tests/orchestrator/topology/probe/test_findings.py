"""Measurements of made-up networks: what is found in them was put into them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric
from orchestrator.topology.links import Link
from orchestrator.topology.probe.findings import Findings, Measurement, findings
from orchestrator.topology.probe.rounds import Pair, rounds_of
from tests.orchestrator.topology.probe.test_rounds import ends, fabric

SPEED = {Tier.ISLAND: 400e9, Tier.NODE: 50e9, Tier.LEAF: 40e9, Tier.SPINE: 20e9}
LATENCY = {Tier.ISLAND: 2e-6, Tier.NODE: 4e-6, Tier.LEAF: 8e-6, Tier.SPINE: 12e-6}
Flaw = Callable[[Pair, Tier], float]


def whole(pair: Pair, tier: Tier) -> float:
    return 1.0


def measured(
    where: Fabric, *, uplink: float | None = None, flaw: Flaw = whole, noise: float = 0.0
) -> list[Measurement]:
    """A network with the speeds above, two ends each way; pairs of two leaves share what their uplinks carry."""
    random, found = Random(1), []
    for number, one in enumerate(rounds_of(where, ends(where), most=8)):
        leaves = Counter(frozenset((p.a.node[:2], p.b.node[:2])) for p in one.pairs)
        for pair in one.pairs:
            rate = SPEED[one.tier] * flaw(pair, one.tier)
            if uplink is not None and one.tier is Tier.SPINE:
                rate = min(rate, uplink / leaves[frozenset((pair.a.node[:2], pair.b.node[:2]))])
            out, back = (rate * (1 + random.uniform(-noise, noise)) for _ in range(2))
            found.append(Measurement(pair, one.tier, number, one.loaded, out, back, LATENCY[one.tier]))
    return found


def bad(found: Findings) -> dict[str, float]:
    return {link.where: pytest.approx(link.share, rel=0.15) for link in found.bad}


def test_tiers_get_their_numbers() -> None:
    where = fabric(4, 4)
    found = findings(where, measured(where, noise=0.1))
    assert {tier.tier: tier.pairs for tier in found.tiers} == {
        Tier.ISLAND: 16,  # one in each node
        Tier.LEAF: 24,  # 3 rounds of 8
        Tier.SPINE: 16 + 64,  # 8 rounds of 2 pairs of leaves, one by one and four at once
    }
    for tier, link in found.fabric.links.items():
        assert link.bandwidth == pytest.approx(SPEED[tier], rel=0.05)
        assert link.latency_s == LATENCY[tier]
        assert link.uplink is None  # four at once carry four times one
    assert not found.bad
    assert (
        found.messages[1]
        == f"leaf: bandwidth {found.tiers[1].measured.bandwidth / 1e9:.3g} GB/s measured, none declared"
    )


def test_an_uplink_shows_when_it_is_shared() -> None:
    """20 GB/s a pair, 30 GB/s for the four of a leaf."""
    where = fabric(4, 4)
    spine = findings(where, measured(where, uplink=30e9)).fabric.links[Tier.SPINE]
    assert (spine.bandwidth, spine.uplink) == (pytest.approx(20e9), pytest.approx(30e9))


def test_declared_numbers_are_confirmed_contradicted_and_completed() -> None:
    where = fabric(2, 4)
    links = {Tier.LEAF: Link("ib-ndr", 44e9, None, 352e9), Tier.SPINE: Link("ib-ndr", 44e9)}
    found = findings(Fabric(where.nodes, links), measured(where, uplink=30e9))
    assert found.messages == (
        "island: bandwidth 400 GB/s measured, none declared",
        "leaf: bandwidth 40 GB/s measured confirms 44 GB/s declared",
        "spine: bandwidth 20 GB/s measured contradicts 44 GB/s declared; the measured one counts",
        "spine: uplink 30 GB/s measured, none declared",
    )
    assert found.fabric.links[Tier.LEAF] == Link(
        "ib-ndr", 40e9, 8e-6, 352e9, measured=True
    )  # what was not measured stays
    assert found.fabric.links[Tier.SPINE] == Link("ib-ndr", 20e9, 12e-6, 30e9, measured=True)


def test_a_node_with_half_a_link_is_marked_and_its_partners_are_not() -> None:
    where = fabric(2, 4)
    found = findings(
        where,
        measured(
            where,
            noise=0.1,
            flaw=lambda p, t: 0.5 if "l0n2" in (p.a.node, p.b.node) and t is Tier.LEAF else 1,
        ),
    )
    assert bad(found) == {"node l0n2": 0.5}
    assert found.bad[0].message.startswith("node l0n2: 1")  # somewhat less than 20 GB/s: the worse direction
    assert "GB/s over the leaf, others 3" in found.bad[0].message
    assert [node.name for node in found.fabric.nodes if node.suspect] == ["l0n2"]
    assert found.fabric.links[Tier.LEAF].bandwidth == pytest.approx(40e9, rel=0.05)  # of the others


def test_two_bad_nodes_of_one_leaf() -> None:
    where = fabric(1, 6)
    slow = {"l0n1": 0.3, "l0n4": 0.5}
    found = findings(
        where,
        measured(
            where,
            flaw=lambda p, t: min(slow.get(p.a.node, 1), slow.get(p.b.node, 1)) if t is Tier.LEAF else 1,
        ),
    )
    assert bad(found) == {"node l0n1": 0.3, "node l0n4": 0.5}


def test_a_leaf_with_a_bad_uplink_is_marked_and_its_nodes_are_not_suspect() -> None:
    where = fabric(4, 3)
    found = findings(
        where,
        measured(
            where,
            noise=0.1,
            flaw=lambda p, t: 0.4 if t is Tier.SPINE and "l2" in (p.a.node[:2], p.b.node[:2]) else 1,
        ),
    )
    assert bad(found) == {"leaf l2": 0.4}
    assert found.bad[0].nodes == ("l2n0", "l2n1", "l2n2")
    assert not any(node.suspect for node in found.fabric.nodes)


def test_one_bad_pair_of_good_nodes() -> None:
    where = fabric(1, 6)
    found = findings(
        where, measured(where, flaw=lambda p, t: 0.2 if {p.a.node, p.b.node} == {"l0n1", "l0n3"} else 1)
    )
    assert bad(found) == {"l0n1-l0n3": 0.2}
    assert not any(node.suspect for node in found.fabric.nodes)


def test_an_island_that_is_slow_inside() -> None:
    where = fabric(1, 4)
    found = findings(
        where, measured(where, flaw=lambda p, t: 0.5 if t is Tier.ISLAND and p.a.node == "l0n3" else 1)
    )
    assert bad(found) == {"node l0n3": 0.5}


def test_of_two_that_only_meet_each_other_neither_is_told_bad() -> None:
    where = fabric(2, 2)
    found = findings(where, measured(where, flaw=lambda p, t: 0.5 if t is Tier.SPINE else 1))
    assert not found.bad
    assert found.fabric.links[Tier.SPINE].bandwidth == pytest.approx(10e9)


def test_noise_alone_marks_nothing() -> None:
    where = fabric(4, 8)
    assert not findings(where, measured(where, uplink=80e9, noise=0.2)).bad


def test_pairs_without_an_answer() -> None:
    where = fabric(1, 4)
    told = measured(where)
    dead = [
        replace(m, out=0.0, back=0.0, error="no answer within 30 s")
        if "l0n3" in (m.pair.a.node, m.pair.b.node)
        else m
        for m in told
    ]
    found = findings(where, dead)
    assert [(link.where, link.share) for link in found.bad] == [("node l0n3", 0.0)]
    assert found.bad[0].message == "node l0n3: no pair with it gave an answer: no answer within 30 s"
    assert [node.name for node in found.fabric.nodes if node.suspect] == ["l0n3"]
    cut = [
        replace(m, error="connection refused") if {m.pair.a.node, m.pair.b.node} == {"l0n0", "l0n1"} else m
        for m in told
    ]
    assert [link.where for link in findings(where, cut).bad] == ["l0n0-l0n1"]


def test_nothing_measured_finds_nothing() -> None:
    where = fabric(1, 1)
    assert findings(where, []) == Findings(where, (), (), ())
