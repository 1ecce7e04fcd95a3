"""The cost of a placement and the cheapest one, computed apart from the solver: rank by rank, over all seatings.

Numbers ranks itself, reads labels off the nodes itself. The formulas are those of docs/placement.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product

from orchestrator.placement.demand import Demand, Pattern, Workload
from orchestrator.spec.sections import ParallelismSpec, PlacementSpec
from orchestrator.topology.fabric import Fabric, Slot

TIERS = ("island", "node", "leaf", "spine", "core", "any")
Numbers = Mapping[str, tuple[float, float, float | None]]
"""Tier: bandwidth, latency, uplink."""
Label = tuple[str | None, ...]


def labels(fabric: Fabric, slot: Slot) -> Label:
    node = next(node for node in fabric.nodes if node.name == slot.node)
    domains = {tier.value: name for tier, name in node.domains.items()}
    island = node.islands.get(slot.index, domains.get("island"))
    return (island, node.name, domains.get("leaf"), domains.get("spine"), domains.get("core"), "")


def groups(plan: ParallelismSpec, axis: str, size: int) -> list[list[int]]:
    """rank = t + tp * (c + cp * (p + pp * d)); expert groups are neighbours in (d, c, t) of one stage."""
    every = list(product(range(plan.dp), range(plan.pp), range(plan.cp), range(plan.tp)))

    def rank(d: int, p: int, c: int, t: int) -> int:
        return t + plan.tp * (c + plan.cp * (p + plan.pp * d))

    if axis == "ep":
        stages = [[rank(d, p, c, t) for d, p, c, t in every if p == stage] for stage in range(plan.pp)]
        return [stage[i : i + size] for stage in stages for i in range(0, len(stage), size)]
    key: dict[str, Callable[[int, int, int, int], tuple[int, ...]]] = {
        "tp": lambda d, p, c, t: (d, p, c),
        "cp": lambda d, p, c, t: (d, p, t),
        "pp": lambda d, p, c, t: (d, c, t),
        "dp": lambda d, p, c, t: (p, t),  # context ranks hold the same parameters as data ranks
    }
    found: dict[tuple[int, ...], list[int]] = {}
    for place in every:
        found.setdefault(key[axis](*place), []).append(rank(*place))
    return list(found.values())


def nearest(a: Label, b: Label) -> int:
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x is not None and x == y)


def split(seats: Sequence[Label], level: int) -> Counter[object]:
    return Counter(_domain(seat, level, i) for i, seat in enumerate(seats))


def _domain(seat: Label, level: int, rank: int) -> object:
    """Of an unknown domain it is known that it holds the nearer one; `rank` is alone where nothing is known."""
    if seat[level] is not None:
        return seat[level]
    return ("around", _domain(seat, level - 1, rank) if level else rank)


def hierarchical(seats: Sequence[Label]) -> list[int] | None:
    """Domains touched by level when members are even in each of them; None when they are not."""
    counts, before = [], len(seats)
    for level in range(len(TIERS)):
        held = split(seats, level)
        if len(set(held.values())) > 1 or before % len(held):
            return None
        counts.append(before := len(held))
    return counts


def flows(demand: Demand, group: Sequence[int], seat: Sequence[Label]) -> Iterator[tuple[int, int, float]]:
    """(rank, level, bytes it sends over it)."""
    size = len(group)
    if demand.pattern is Pattern.CHAIN:
        for a, b in pairwise(group):
            yield a, nearest(seat[a], seat[b]), demand.bytes
            yield b, nearest(seat[a], seat[b]), demand.bytes
    elif demand.pattern is Pattern.EXCHANGE:
        for a in group:
            for b in group:
                if a != b:
                    yield a, nearest(seat[a], seat[b]), demand.bytes / (size - 1)
    elif (
        demand.pattern is Pattern.RING
        and (counts := hierarchical([seat[rank] for rank in group])) is not None
    ):
        inside, before = 1, size
        for level, count in enumerate(counts):
            factor = before // count
            inside *= factor
            for rank in group:
                if factor > 1:
                    yield rank, level, demand.bytes * size / (size - 1) * (factor - 1) / inside
            before = count
    else:
        for i, a in enumerate(group):
            yield a, nearest(seat[a], seat[group[(i + 1) % size]]), demand.bytes


def seconds(
    plan: ParallelismSpec,
    demands: Sequence[Demand],
    seat: Sequence[Label],
    numbers: Numbers,
    hidden_s: float = 0.0,
) -> float:
    """`hidden_s`: how long backward takes, behind which overlapped axes are sent at a twentieth of their time."""
    exposed = overlapped = 0.0
    for demand in demands:
        link: defaultdict[int, float] = defaultdict(float)
        load: defaultdict[tuple[int, str], float] = defaultdict(float)
        widest = 0
        for group in groups(plan, demand.axis, demand.size):
            for rank, level, size in flows(demand, group, seat):
                widest = max(widest, level)
                link[rank] += size / numbers[TIERS[level]][0]
                for passed in range(2, level + 1) if level >= 2 else ([1] if level == 1 else []):
                    domain = seat[rank][passed - 1]
                    if domain is not None and numbers[TIERS[passed]][2] is not None:
                        load[passed, domain] += size
        uplinks = [size / (numbers[TIERS[level]][2] or 1.0) for (level, _), size in load.items()]
        taken = max([*link.values(), *uplinks]) + demand.messages * numbers[TIERS[widest]][1]
        exposed, overlapped = (
            (exposed, overlapped + taken) if demand.overlapped else (exposed + taken, overlapped)
        )
    hidden = min(overlapped, hidden_s)
    return exposed + (overlapped - hidden) + hidden / 20


def demanded(plan: ParallelismSpec, rules: PlacementSpec) -> list[tuple[int, list[int]]]:
    """(level, ranks) that required rules keep together."""
    found = []
    for axis in ("tp", "cp", "ep", "pp"):
        rule, size = getattr(rules, axis), getattr(plan, axis)
        if rule.mode != "required" or rule.tier.value == "any" or size == 1:
            continue
        sets = groups(plan, axis, size)
        if axis in ("cp", "pp"):
            inner = 1 if axis == "cp" else plan.cp
            block = plan.tp * inner * size
            sets = [list(range(i, i + block)) for i in range(0, plan.world_size, block)]
        found += [(TIERS.index(rule.tier.value), ranks) for ranks in sets]
    return found


def seatings(size: int, free: Mapping[Label, int]) -> Iterator[list[Label]]:
    def place(chosen: list[Label], left: dict[Label, int]) -> Iterator[list[Label]]:
        if len(chosen) == size:
            yield chosen
            return
        for label in left:
            if left[label]:
                yield from place([*chosen, label], {**left, label: left[label] - 1})

    return place([], dict(free))


def keeps(seat: Sequence[Label], bonds: Sequence[tuple[int, list[int]]]) -> bool:
    return all(
        seat[ranks[0]][level] is not None
        and all(seat[rank][level] == seat[ranks[0]][level] for rank in ranks)
        for level, ranks in bonds
    )


def least(
    workload: Workload,
    rules: PlacementSpec,
    fabric: Fabric,
    free: frozenset[Slot],
    numbers: Numbers,
    hidden_s: float = 0.0,
) -> float | None:
    """Least seconds over all seatings that keep the required rules; None when there is none."""
    plan = workload.parallelism
    room = Counter(labels(fabric, slot) for slot in sorted(free))
    bonds = demanded(plan, rules)
    allowed = (seat for seat in seatings(plan.world_size, room) if keeps(seat, bonds))
    return min((seconds(plan, workload.demands, seat, numbers, hidden_s) for seat in allowed), default=None)
