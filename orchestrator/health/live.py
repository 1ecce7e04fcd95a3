"""The detector of stragglers on a running attempt: rows of measurements go in, findings and a heat map come out.

By which clock computing is judged:
- accelerators: by their own (CUDA events). Waiting is not known there, so links and time outside of computing are not
  judged.
- CPUs: by the wall clock, without what the rank waited for others. A rank that another process takes the core from is
  late, and that is a finding.
- CPUs that the ranks share, as on one machine that plays many nodes: there the wall clock tells who was scheduled. The
  median rank then has the CPU for less than SHARED of the time that it computes, not in every step (ranks that wait for
  each other leave their cores to others) but in one of eight. Computing is judged by the CPU time of the thread that
  computes, which does not go on while it waits for a core; nothing else is judged. Once seen, this holds for the rest
  of the attempt.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence

import numpy as np

from orchestrator.health.assembly import RewoundError, StepAssembly
from orchestrator.health.finding import Clock, Finding, findings
from orchestrator.health.heat import HeatBlock, HeatRecorder
from orchestrator.health.layout import PHASES, WHOLE, Floats, Layout
from orchestrator.health.phases import AT
from orchestrator.health.straggler import StragglerDetector
from orchestrator.placement.mesh import Mesh

WARM_STEPS = 3
"""First steps of an attempt, which compile, allocate and connect: not judged."""
LEARNED = 8
"""Steps before the clock is chosen and anything is said."""
SHARED = 0.8
"""CPU time over wall time of computing: below it cores are shared."""
SHARED_STEPS = 1 / 8
"""Of the steps in which the median rank shared its core, at least so many."""
SHARE_OVER = 32
"""Newest steps that are looked at for it."""
JUDGED_KEPT = 100_000
"""Judged steps whose numbers are kept, for costs a step."""


class LiveHealth:
    """Of one attempt."""

    def __init__(self, attempt: int, mesh: Mesh, nodes: Sequence[str]) -> None:
        """`nodes`: the node of each rank."""
        self.attempt = attempt
        self._mesh = mesh
        self._node_of = dict(enumerate(nodes))
        self._assembly = StepAssembly(mesh.size)
        self._heat = HeatRecorder(attempt, mesh.size)
        self._seen = 0
        self._early: list[tuple[int, Floats]] = []
        self._shares: deque[Floats] = deque(maxlen=SHARE_OVER)
        """By rank."""
        self._detector: StragglerDetector | None = None
        self.clock: Clock | None = None
        """None until the first steps have shown it."""
        self._judged: deque[int] = deque(maxlen=JUDGED_KEPT)

    def take(self, rows: Floats) -> bool:
        """Measurements of some ranks and steps, (rows, columns of ROW); True when a step was judged."""
        before = self._seen
        try:
            for step, phases in self._assembly.take(rows):
                self._observe(step, phases)
        except RewoundError:
            self._begin_anew()
            return True
        return self._seen > before

    @property
    def step(self) -> int:
        """The newest judged; 0 before any was."""
        return self._judged[-1] if self._judged else 0

    def findings(self) -> tuple[Finding, ...]:
        """Everything that is said of the attempt so far."""
        if self._detector is None or self.clock is None:
            return ()
        return findings(
            self._detector.verdict(),
            attempt=self.attempt,
            clock=self.clock,
            node_of=self._node_of,
            steps_within=self._steps_within,
        )

    def heat(self) -> list[HeatBlock]:
        return self._heat.blocks()

    def _observe(self, step: int, phases: Floats) -> None:
        self._seen += 1
        if self._seen <= WARM_STEPS:
            return
        self._shares.append(_share(phases))
        if self._detector is not None:
            if self.clock is Clock.WALL and self._cores_are_shared:
                self._begin_detector(Clock.CPU)
            self._judge(step, phases)
            return
        self._early.append((step, phases))
        if len(self._early) < LEARNED:
            return
        on_device = bool(np.isnan(phases[:, AT["compute_cpu_s"]]).all())
        clock = Clock.DEVICE if on_device else Clock.CPU if self._cores_are_shared else Clock.WALL
        self._begin_detector(clock)
        for early in self._early:
            self._judge(*early)
        self._early = []

    @property
    def _cores_are_shared(self) -> bool:
        if len(self._shares) < LEARNED:
            return False
        low = np.quantile(np.stack(self._shares), SHARED_STEPS, axis=0)
        return float(np.median(low)) < SHARED

    def _begin_detector(self, clock: Clock) -> None:
        self.clock = clock
        self._judged.clear()
        self._detector = StragglerDetector(_layout(self._mesh, self._node_of, clock))

    def _judge(self, step: int, phases: Floats) -> None:
        assert self._detector is not None
        assert self.clock is not None
        compute = _compute(phases, self.clock)
        self._detector.observe(step, _measured(phases) if self.clock is Clock.WALL else compute[:, None])
        self._judged.append(step)
        waited = phases[:, [AT[name] for name in ("receive_s", "send_s", "collective_s")]].sum(axis=1)
        self._heat.add(step, compute, waited, step_s=float(np.nanmedian(_wall(phases))))

    def _begin_anew(self) -> None:
        """The job went back to a checkpoint within the attempt; what was measured on the way is no longer told."""
        self._assembly = StepAssembly(self._mesh.size)
        self._detector, self.clock = None, None
        self._seen = WARM_STEPS  # the ranks are warm
        self._early, self._shares = [], deque(maxlen=SHARE_OVER)
        self._judged.clear()

    def _steps_within(self, first: int, last: int) -> int:
        return bisect_right(self._judged, last) - bisect_left(self._judged, first)


def _layout(mesh: Mesh, node_of: dict[int, str], clock: Clock) -> Layout:
    """A pipeline is what messages pass along: the ranks with the same tp, cp and dp."""
    at = [mesh.coordinates(rank) for rank in range(mesh.size)]
    tp, cp = mesh.degree("tp"), mesh.degree("cp")
    return Layout.of(
        tuple(range(mesh.size)),
        stage={rank: here["pp"] for rank, here in enumerate(at)},
        replica={rank: here["tp"] + tp * (here["cp"] + cp * here["dp"]) for rank, here in enumerate(at)},
        node=node_of,
        columns=PHASES if clock is Clock.WALL else WHOLE,
    )


def _compute(phases: Floats, clock: Clock) -> Floats:
    """Seconds of computing by rank."""
    if clock is Clock.CPU:
        return phases[:, AT["compute_cpu_s"]]
    computed: Floats = phases[:, AT["forward_s"]] + phases[:, AT["backward_s"]]
    return computed


def _wall(phases: Floats) -> Floats:
    """The step without what comes between two steps; what is not known counts as nothing. NaN: no report."""
    parts = ("data_s", "forward_s", "backward_s", "receive_s", "send_s", "collective_s", "optimizer_s")
    seconds: Floats = np.nansum(phases[:, [AT[name] for name in parts]], axis=1)
    return np.where(np.isnan(phases[:, AT["forward_s"]]), np.nan, seconds)


def _measured(phases: Floats) -> Floats:
    """(ranks, columns of PHASES)"""
    named = ("forward_s", "backward_s", "receive_s", "send_s", "collective_s", "garbage_s")
    return np.column_stack([phases[:, [AT[name] for name in named]], _wall(phases)])


def _share(phases: Floats) -> Floats:
    """CPU time over wall time of computing, by rank; 1 where one is not known, as on accelerators."""
    wall, cpu = _compute(phases, Clock.WALL), phases[:, AT["compute_cpu_s"]]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((wall > 0) & ~np.isnan(cpu), cpu / wall, 1.0)
