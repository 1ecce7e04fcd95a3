"""From the seconds of one step to what can be blamed: computing, time outside of it, and links.

Wall time of a step is equal on all ranks of a synchronous job: they wait for the slowest. So it is never compared.
What a rank computes is (MegaScale, NSDI 2024, section 5.1; "Understanding Stragglers in Large Model Training Using
What-if Analysis", OSDI 2025), and what of the step it did *not* wait: the culprit waits least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.health.layout import Floats, Layout
from orchestrator.health.peers import History, references, stacked
from orchestrator.health.track import Sample


@dataclass(frozen=True, slots=True)
class StepSignals:
    """One step. `busy` and the links are None where phases were not measured."""

    compute: Sample
    busy: Sample | None = None
    """The step less all waiting: finds what is outside forward and backward, such as a slow data loader."""
    links: Sample | None = None
    """Sending of one rank and receiving of the next, a subject a pair of `Layout.pairs`."""
    collective: Sample | None = None
    """Waiting in collectives that others of the group do not share."""


class Signals:
    """Turns steps into signals; keeps the first steps of every group (see `History`)."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._history = History(layout.groups)
        self._peers = stacked(layout.groups)
        self._pair_peers = stacked(layout.pair_groups)

    def of(self, step: int, seconds: Floats) -> StepSignals:
        """seconds: (ranks, columns of the layout), NaN in the whole row of a rank that is not there."""
        if not self._layout.phased:
            computed = seconds[:, 0]
            reference, historic = self._history.mended(computed, references(computed, self._peers))
            return StepSignals(_sample(step, computed - reference, reference, historic=historic))
        forward, backward, receive, send, collective, garbage, wall = seconds.T
        computed = forward + backward
        waited = receive + send + collective
        own = wall - waited
        scale, usual_garbage, usual_wait = references(np.stack([computed, garbage, waited]), self._peers)
        # who all wait for is not what is usual
        latest, longest = references(np.stack([own, collective]), self._peers, upper=True)
        reference, historic = self._history.mended(computed, scale)
        facts = {
            "garbage": garbage - usual_garbage,
            "unexplained": wall - computed - waited,
            "spared": usual_wait - waited,
        }
        return StepSignals(
            compute=_sample(step, computed - reference, reference, historic=historic, **facts),
            busy=_sample(step, own - latest, scale, **facts),
            links=self._links(step, send, receive, scale),
            collective=self._collective(step, collective - longest, longest, scale - computed, scale),
        )

    def _links(self, step: int, send: Floats, receive: Floats, scale: Floats) -> Sample | None:
        if not self._layout.pairs:
            return None
        senders, receivers = (np.array(side) for side in zip(*self._layout.pairs, strict=True))
        moved = send[senders] + receive[receivers]
        usual = references(moved, self._pair_peers)
        return _sample(step, moved - usual, usual, share_of=scale[senders])

    def _collective(self, step: int, longer: Floats, usual: Floats, earlier: Floats, scale: Floats) -> Sample:
        """Longer in a collective than the others although not earlier there: computing less explains waiting more."""
        excess = longer - np.maximum(0.0, earlier)
        for group in self._layout.groups:
            if len(group) < 3:  # of two, the other one may as well have come late
                excess[group] = np.nan
        return _sample(step, excess, usual, share_of=scale)


def _sample(
    step: int,
    excess: Floats,
    reference: Floats,
    *,
    share_of: Floats | None = None,
    historic: NDArray[np.bool_] | None = None,
    **facts: Floats,
) -> Sample:
    nothing = np.zeros(len(excess))
    base = reference if share_of is None else share_of
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.where(base > 0, excess / base, np.nan)
    return Sample(
        step=step,
        relative=relative,
        excess=excess,
        reference=reference,
        garbage=facts.get("garbage", nothing),
        unexplained=facts.get("unexplained", nothing),
        spared=facts.get("spared", nothing),
        historic=np.zeros(len(excess), dtype=np.bool_) if historic is None else historic,
    )
