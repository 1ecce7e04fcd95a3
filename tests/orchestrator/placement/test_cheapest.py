"""On random small fabrics and jobs the solver's placement costs what exhaustive search finds to be the least."""

from __future__ import annotations

from collections import Counter
from math import factorial, prod
from random import Random

import pytest

from orchestrator.placement.demand import Demand, Pattern, Workload
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement
from orchestrator.placement.solver import solve
from orchestrator.spec.sections import (
    AxisRule,
    ParallelismSpec,
    PlacementSpec,
    Precision,
    ResourcesSpec,
    Tier,
)
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.links import Link
from tests.orchestrator.placement import exhaustive

MOST_SEATINGS = 3000
PATTERNS = {
    "tp": Pattern.RING,
    "cp": Pattern.RING,
    "ep": Pattern.EXCHANGE,
    "pp": Pattern.CHAIN,
    "dp": Pattern.RING,
}
PLANS = [
    ParallelismSpec(tp=tp, cp=cp, pp=pp, dp=dp, ep=ep)
    for tp in (1, 2, 4)
    for cp in (1, 2)
    for pp in (1, 2, 3, 4)
    for dp in (1, 2, 3, 4)
    for ep in (1, 2, 4)
    if 3 <= tp * cp * pp * dp <= 8 and (tp * cp * dp) % ep == 0
]


def fabric_of(random: Random) -> tuple[Fabric, frozenset[Slot], exhaustive.Numbers]:
    """Tiers nested, the core known or not; islands in nodes or as nodes; some slots taken."""
    shape = random.choice(["node", "node", "pairs"])
    core = random.choice([{}, {Tier.CORE: "c"}])
    nodes = []
    for number in range(random.randint(2, 6)):
        width = random.choice([1, 2, 2, 4])
        leaf = number // random.choice([1, 2, 2, 3])
        domains = {Tier.LEAF: f"l{leaf}", Tier.SPINE: f"s{leaf // 2}"} | core
        islands = {i: f"n{number}-{i // 2}" for i in range(width)} if shape == "pairs" else {}
        if not islands:
            domains[Tier.ISLAND] = f"i{number}"
        nodes.append(Node(f"n{number}", width, domains, islands, accelerator="H100"))
    speed, links, numbers = 400e9, {}, {}
    for tier in Tier:
        uplink = random.choice([None, None, speed / 2, speed, 2 * speed])
        links[tier] = Link(None, speed, random.choice([1e-6, 5e-6]) * (1 + list(Tier).index(tier)), uplink)
        numbers[tier.value] = (speed, links[tier].latency_s or 0.0, uplink)
        speed /= random.choice([1.5, 2, 8])
    fabric = Fabric(tuple(nodes), links)
    free = sorted(fabric.slots())
    taken = random.sample(free, random.randint(0, len(free) // 3))
    return fabric, fabric.slots() - set(taken), numbers


def job_of(random: Random, plan: ParallelismSpec) -> tuple[Workload, PlacementSpec]:
    sizes = {"tp": plan.tp, "cp": plan.cp, "ep": plan.ep, "pp": plan.pp, "dp": plan.dp * plan.cp}
    gloo = random.random() < 0.3
    hides = random.random() < 0.5
    demands = tuple(
        Demand(
            axis,
            _pattern(axis, gloo),
            size,
            10 ** random.uniform(6, 10),
            random.choice([0, 10, 1000]),
            overlapped=hides and axis == "dp",
        )
        for axis, size in sizes.items()
        if size > 1
    )
    free = AxisRule(tier=Tier.ANY, mode="preferred")
    rules = dict.fromkeys(PATTERNS, free)
    if random.random() < 0.5:
        rules["tp"] = AxisRule(tier=Tier.ISLAND)
    if random.random() < 0.4:
        rules["pp"] = AxisRule(tier=random.choice([Tier.LEAF, Tier.SPINE]))
    backward_flops = 10 ** random.uniform(10, 14) if hides else 0.0
    return Workload(plan, demands, backward_flops, Precision.BF16), PlacementSpec(**rules)


def _pattern(axis: str, gloo: bool) -> Pattern:
    return Pattern.FLAT_RING if gloo and PATTERNS[axis] is Pattern.RING else PATTERNS[axis]


def compare(seed: int) -> bool:
    """False when the case is too large for an exhaustive search or does not fit."""
    random = Random(seed)
    fabric, free, numbers = fabric_of(random)
    plan = random.choice(PLANS)
    workload, rules = job_of(random, plan)
    pockets = Counter(exhaustive.labels(fabric, slot) for slot in free)
    if sum(pockets.values()) < plan.world_size or _seatings(plan.world_size, pockets) > MOST_SEATINGS:
        return False
    # Half of 989.4 TFLOP/s, bf16 on an H100.
    hidden_s = workload.backward_flops / (989.4e12 / 2)
    best = exhaustive.least(workload, rules, fabric, free, numbers, hidden_s)
    answer = solve(Mesh.of(plan), rules, fabric, free, resources=ResourcesSpec(), workload=workload)
    assert isinstance(answer, Placement) == (best is not None), seed
    if best is None or not isinstance(answer, Placement):
        return False
    seat = [exhaustive.labels(fabric, slot) for slot in answer.slots]
    assert exhaustive.keeps(seat, exhaustive.demanded(plan, rules)), seed
    mine = exhaustive.seconds(plan, workload.demands, seat, numbers, hidden_s)
    assert answer.cost is not None
    assert answer.cost.seconds == pytest.approx(mine, rel=1e-9), (
        f"seed {seed}: the cost of the same placement"
    )
    assert mine == pytest.approx(best, rel=1e-9), f"seed {seed}: the least cost"
    return True


def _seatings(size: int, pockets: Counter[exhaustive.Label]) -> int:
    """Number of ways to seat `size` ranks: coefficients of the product of exponential series."""
    ways = [1.0] + [0.0] * size
    for room in pockets.values():
        ways = [sum(ways[n - k] / factorial(k) for k in range(min(room, n) + 1)) for n in range(size + 1)]
    return round(ways[size] * factorial(size))


def test_the_number_of_seatings_by_hand() -> None:
    one, two = ("a",) * 6, ("b",) * 6
    assert _seatings(3, Counter({one: 2, two: 1})) == 3  # aab, aba, baa
    assert _seatings(4, Counter({one: 2, two: 2})) == factorial(4) // prod([2, 2])


def test_a_hundred_random_jobs_cost_as_little_as_exhaustive_search_finds() -> None:
    assert sum(compare(seed) for seed in range(150)) >= 50


@pytest.mark.parametrize("seed", range(20))
def test_the_same_question_gets_the_same_answer_whatever_the_order_of_nodes(seed: int) -> None:
    random = Random(seed)
    fabric, free, _ = fabric_of(random)
    plan = random.choice([plan for plan in PLANS if plan.world_size <= len(free)] or PLANS)
    workload, rules = job_of(random, plan)
    shuffled = random.sample(fabric.nodes, len(fabric.nodes))
    first, second = (
        solve(Mesh.of(plan), rules, where, free, resources=ResourcesSpec(), workload=workload)
        for where in (fabric, Fabric(tuple(shuffled), fabric.links))
    )
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_a_thousand_random_jobs_cost_as_little_as_exhaustive_search_finds(part: int) -> None:
    compared = sum(compare(seed) for seed in range(1000 + 500 * part, 1500 + 500 * part))
    assert compared >= 167, "a sixth of a thousand"
