"""Sentences about what a placement costs: each axis by tier, the whole step, and the next best order of axes.

The seconds are those that placements are compared by: bytes at the links' full rate, and latency. What programs really
get of a link is the estimate's (`orchestrator.estimate`), so the sentences say which of the two they mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.placement.mapping import Mapped
from orchestrator.placement.priced import AxisCost


def cost_sentences(found: Mapped) -> tuple[str, ...]:
    """Empty when the job's traffic is not known."""
    note = () if found.order_kept else ("the order asked for breaks the rules; the default order is used",)
    cost = found.best.cost
    if cost is None or not cost.axes:
        return note
    return (*note, *(_axis(axis) for axis in cost.axes), *_total(found))


def _axis(axis: AxisCost) -> str:
    """`dp: sends 12.3 ms a step at full rate: spine 10.2 ms; the uplink of leaf l0 is the bottleneck`."""
    sentence = f"{axis.axis}: sends {milliseconds(axis.seconds)} a step at full rate"
    if axis.by_tier:
        sentence += ": " + ", ".join(f"{tier} {milliseconds(seconds)}" for tier, seconds in axis.by_tier)
    if axis.uplink is not None:
        sentence += f"; the uplink of {axis.uplink} is the bottleneck"
    return sentence + (" (overlaps with backward)" if axis.overlapped else "")


def _total(found: Mapped) -> Sequence[str]:
    cost, other = found.best.cost, found.next_best
    assert cost is not None
    exposed = f"communication at full rate adds {milliseconds(cost.exposed_s)} to a step"
    if found.best.order:
        exposed += f"; axes from the nearest: {_order(found.best.order)}"
    if other is None or other.cost is None:
        return (exposed,)
    return (
        exposed,
        f"the next best order, {_order(other.order)}, would send {milliseconds(_all(other.cost.axes))} a step "
        f"instead of {milliseconds(_all(cost.axes))} and add {milliseconds(other.cost.exposed_s)}",
    )


def _all(axes: Sequence[AxisCost]) -> float:
    return sum(axis.seconds for axis in axes)


def _order(order: Sequence[str]) -> str:
    return "-".join(order)


def milliseconds(seconds: float) -> str:
    """Three significant digits: `0.0123 ms`, `45.6 ms`, `1230 ms`."""
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"
