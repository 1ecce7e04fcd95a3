"""Known faults in made-up recordings, held against the bars of the design: precision, recall, latency, false flags."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from orchestrator.health.straggler import StragglerDetector
from orchestrator.health.verdict import Straggler, Verdict
from tests.orchestrator.health.injections import FAULTS, UNEVEN, Injection, injection

SEED = 5


@dataclass(frozen=True, slots=True)
class Score:
    injected: Injection
    verdict: Verdict
    right: int
    found: bool
    latency: int
    """Steps from the first slow one to the one at which the last of its ranks is named."""

    @property
    def wrong(self) -> int:
        return len(self.verdict.stragglers) - self.right


def scores(numbers: range) -> list[Score]:
    return [_score(injection(number, SEED)) for number in numbers]


def _score(injected: Injection) -> Score:
    detector = StragglerDetector(injected.layout)
    for step, seconds in enumerate(injected.seconds):
        detector.observe(step, seconds)
    verdict = detector.verdict()
    right = [one for one in verdict.stragglers if _is_right(one, injected)]
    named = {rank for one in right for rank in (one.rank, one.peer)} & injected.ranks
    found = bool(named) if injected.kind == "link" else bool(right) and named == injected.ranks
    first: dict[int, int] = {}
    for one in right:
        first.setdefault(one.rank, one.detected_step)
    latency = max(first.values(), default=0) - injected.first
    return Score(injected, verdict, len(right), found, latency)


def _is_right(one: Straggler, injected: Injection) -> bool:
    overlaps = one.from_step <= injected.last and one.to_step >= injected.first
    return overlaps and bool({one.rank, one.peer} & injected.ranks)


def _meets_the_bars(found: list[Score]) -> None:
    right, wrong = sum(s.right for s in found), sum(s.wrong for s in found)
    assert right >= 0.98 * (right + wrong), [_told(s) for s in found if s.wrong]
    for factor, bar in ((1.10, 0.90), (1.25, 0.98), (1.4, 0.98)):
        these = [s for s in found if s.injected.factor == factor]
        missed = [_told(s) for s in these if not s.found]
        assert len(missed) <= (1 - bar) * len(these), (factor, missed)
    late = [_told(s) for s in found if s.injected.factor == 1.25 and s.latency > 20]
    assert not late
    healthy = sum(
        s.injected.seconds.shape[0] * (len(s.injected.layout) - len(s.injected.ranks)) for s in found
    )
    assert wrong * 10_000 <= healthy
    blamed = [_told(s) for s in found if s.injected.kind in UNEVEN and not s.verdict.healthy]
    assert not blamed


def _told(score: Score) -> tuple[object, ...]:
    injected = score.injected
    shape = (max(injected.layout.stage) + 1, max(injected.layout.replica) + 1)
    findings = [(one.rank, str(one.kind), one.from_step, one.to_step) for one in score.verdict.stragglers]
    truth = (sorted(injected.ranks), injected.first, injected.last)
    return (injected.kind, injected.factor, shape, truth, score.latency, findings)


def test_every_kind_is_among_the_injections() -> None:
    kinds = [injection(number, SEED).kind for number in range(200)]
    assert set(kinds) == {"none", *FAULTS, *UNEVEN}
    assert all(kinds.count(kind) >= 10 for kind in set(kinds))


def test_thirty_injections_meet_the_bars() -> None:
    _meets_the_bars(scores(range(30)))


@pytest.mark.slow
def test_two_hundred_injections_meet_the_bars_and_uneven_work_is_named() -> None:
    found = scores(range(200))
    _meets_the_bars(found)
    for kind, name in UNEVEN.items():
        told = [
            name in {uneven.kind for uneven in s.verdict.imbalance} for s in found if s.injected.kind == kind
        ]
        assert sum(told) >= 0.9 * len(told), kind
    right_kind = [
        s for s in found if s.found and s.injected.kind in {one.kind for one in s.verdict.stragglers}
    ]
    assert len(right_kind) >= 0.9 * sum(s.found for s in found)


def test_the_wall_time_of_a_recording_is_equal_on_all_ranks() -> None:
    seconds = injection(0, SEED).seconds
    assert (seconds[:, :, 6] == seconds[:, :1, 6]).all()
    spent = seconds[:, :, :5].sum(axis=2)
    assert spent == pytest.approx(seconds[:, :, 6])
