"""Who starts, who waits and why. Eight accelerators: two leaves x two nodes x two."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.lifecycle.states import Reason
from orchestrator.queue.admission import Decision, Start, Undecided, Vacate, Wait, expired
from orchestrator.queue.policy import ProjectPolicy, QueuePolicy
from orchestrator.topology.fabric import Fabric
from tests.orchestrator.queue.small_cluster import NOW_S, Queue, fabric, running, slots, waiting

HOUR_S = 3600.0


def started(decisions: list[Decision]) -> list[str]:
    return [decision.job_id for decision in decisions if isinstance(decision, Start)]


def told(decisions: list[Decision], job_id: str) -> Wait:
    (found,) = [d for d in decisions if isinstance(d, Wait) and d.job_id == job_id]
    return found


def test_without_any_of_the_fields_jobs_start_by_age_and_small_ones_pass() -> None:
    holder = running("holder", slots("l0n0", "l0n1"))
    decisions = Queue().decide(
        [waiting("young", 2, waited_s=1), waiting("large", 8, waited_s=9), waiting("small", 2, waited_s=5)],
        [holder],
    )
    assert [d.job_id for d in decisions] == ["large", "small", "young"]
    assert started(decisions) == ["small", "young"]
    assert told(decisions, "large").reason is Reason.NO_ROOM
    assert told(decisions, "large").sentence == "4 of 8 usable accelerators free, 8 needed"


def test_all_of_a_gang_or_nothing() -> None:
    """Rows 2 and 14 of the field faults: two gangs that each want everything; one starts, the other holds nothing."""
    decisions = Queue().decide([waiting("a", 8, waited_s=2), waiting("b", 8, waited_s=1)])
    (start,) = [d for d in decisions if isinstance(d, Start)]
    assert (start.job_id, len(set(start.placement.slots))) == ("a", 8)
    assert told(decisions, "b").reason is Reason.NO_ROOM


def test_priority_goes_before_age() -> None:
    decisions = Queue().decide([waiting("old", 8, waited_s=100), waiting("urgent", 8, priority=1)])
    assert started(decisions) == ["urgent"]


class TestQuota:
    POLICY = QueuePolicy(projects={"small": ProjectPolicy(quota=4)})

    def test_a_project_holds_no_more_than_its_quota(self) -> None:
        decisions = Queue(self.POLICY).decide(
            [waiting("a", 2, project="small", waited_s=2), waiting("b", 2, project="small", waited_s=1)],
            [running("r", slots("l0n0"), project="small")],
        )
        assert started(decisions) == ["a"]
        wait = told(decisions, "b")
        assert (wait.reason, wait.ever) == (Reason.OVER_QUOTA, True)
        assert wait.sentence == "project small holds 4 of its quota of 4 accelerators, 2 needed"

    def test_other_projects_are_not_kept_back(self) -> None:
        jobs = [waiting("a", 8, project="small", waited_s=9), waiting("b", 8, project="other")]
        decisions = Queue(self.POLICY).decide(jobs)
        assert started(decisions) == ["b"]
        assert not told(decisions, "a").ever, "eight never fit into a quota of four"

    def test_a_job_over_its_quota_gets_no_reservation(self) -> None:
        queue = Queue(self.POLICY)
        jobs = [waiting("a", 4, project="small", waited_s=90_000.0)]
        queue.decide(jobs, [running("r", slots("l0n0"), project="small")])
        assert queue.reservations == []


class TestShares:
    POLICY = QueuePolicy(projects={"two": ProjectPolicy(weight=2.0)})

    def test_accelerators_go_by_weight(self) -> None:
        """`one` submitted everything first. By weights 1 : 2 it gets 2 or 3 of 8 accelerators: shares after each start,
        ties by age, are one 1, two 1/2, two 1, one 2, two 3/2, two 2, one 3, two 5/2 - five starts of `two`."""
        jobs = [waiting(f"one-{i}", 1, project="one", waited_s=100 - i) for i in range(9)]
        jobs += [waiting(f"two-{i}", 1, project="two", waited_s=50 - i) for i in range(9)]
        names = started(Queue(self.POLICY).decide(jobs))
        assert [name[:3] for name in names] == ["one", "two", "two", "one", "two", "two", "one", "two"]

    def test_what_was_used_lately_counts(self) -> None:
        jobs = [waiting("a", 8, project="one", waited_s=9), waiting("b", 8, project="other")]
        assert started(Queue().decide(jobs, use={"one": 1.0})) == ["b"]
        assert started(Queue().decide(jobs, use={"one": 1.0, "other": 1.0})) == ["a"]


class TestReservation:
    """`wide` needs all eight; `holder` has four of them for at most an hour more."""

    HOLDER = running("holder", slots("l0n0", "l0n1"), since_s=HOUR_S, time_limit_s=2 * HOUR_S)
    WIDE = waiting("wide", 8, waited_s=60)

    def test_the_head_is_promised_a_time_and_later_jobs_stay_off(self) -> None:
        queue = Queue()
        decisions = queue.decide([self.WIDE, waiting("endless", 2, waited_s=1)], [self.HOLDER])
        assert started(decisions) == []
        (kept,) = queue.reservations
        assert (kept.job_id, kept.start_s, len(kept.placement.slots)) == ("wide", NOW_S + HOUR_S, 8)
        assert (
            "8 accelerators are kept for it, at 1970-01-12 14:46:40Z at the latest"
            in told(decisions, "wide").sentence
        )
        wait = told(decisions, "endless")
        assert wait.reason is Reason.RESERVED
        assert "kept for wide" in wait.sentence
        assert "a queue.time_limit_s that ends before 1970-01-12 14:46:40Z" in wait.sentence

    def test_a_job_that_surely_ends_in_time_passes(self) -> None:
        jobs = [
            self.WIDE,
            waiting("short", 2, time_limit_s=HOUR_S, waited_s=1),
            waiting("long", 2, time_limit_s=HOUR_S + 1),
        ]
        decisions = Queue().decide(jobs, [self.HOLDER])
        assert started(decisions) == ["short"]
        (start,) = [d for d in decisions if isinstance(d, Start)]
        assert (
            start.sentence
            == "It passed 1 waiting job: this takes nothing that wide needs when its turn comes."
        )
        assert told(decisions, "long").reason is Reason.RESERVED

    def test_the_grace_time_counts(self) -> None:
        job = waiting("short", 2, time_limit_s=HOUR_S, grace_s=1.0)
        assert started(Queue().decide([self.WIDE, job], [self.HOLDER])) == []

    def test_what_is_not_kept_is_free_for_all(self) -> None:
        """The head needs four: the leaf that the holder leaves. The other leaf is anybody's."""
        other = running("other", slots("l1n0"))
        queue = Queue()
        decisions = queue.decide(
            [waiting("head", 6, waited_s=9), waiting("endless", 2)], [self.HOLDER, other]
        )
        (kept,) = queue.reservations
        assert len(kept.placement.slots) == 6
        assert started(decisions) == []  # 6 of the 6 that are not `other`'s are kept
        decisions = queue.decide(
            [waiting("head", 4, waited_s=9), waiting("endless", 2)], [self.HOLDER, other]
        )
        (kept,) = queue.reservations
        assert {slot.node for slot in kept.placement.slots} == {"l0n0", "l0n1"}
        assert started(decisions) == ["endless"]

    def test_nothing_is_promised_on_jobs_without_a_limit(self) -> None:
        queue = Queue()
        holder = running("holder", slots("l0n0", "l0n1"))
        assert started(queue.decide([self.WIDE, waiting("endless", 2)], [holder])) == ["endless"]
        assert queue.reservations == []

    def test_a_promise_is_kept_though_it_could_be_made_anew(self) -> None:
        queue = Queue()
        queue.decide([self.WIDE], [self.HOLDER])
        (promised,) = queue.reservations
        before = queue.solves
        queue.decide([self.WIDE], [self.HOLDER], earlier=[promised])
        assert queue.reservations == [promised]
        assert queue.solves == before + 1, "only whether it fits now was asked"
        extended = replace(self.HOLDER, claim=replace(self.HOLDER.claim, time_limit_s=3 * HOUR_S))
        queue.decide([self.WIDE], [extended], earlier=[promised])
        assert queue.reservations[0].start_s == NOW_S + 2 * HOUR_S, "one that cannot be met is made anew"


class TestStarvation:
    POLICY = QueuePolicy(starvation_s=100.0)

    def test_who_waited_too_long_goes_before_priority_and_share(self) -> None:
        jobs = [
            waiting("urgent", 8, priority=9, waited_s=99),
            waiting("old", 8, project="greedy", waited_s=100),
        ]
        assert started(Queue(self.POLICY).decide(jobs, use={"greedy": 1e6})) == ["old"]

    def test_accelerators_are_kept_for_it_though_nobody_knows_until_when(self) -> None:
        queue = Queue(self.POLICY)
        holder = running("holder", slots("l0n0", "l0n1"))
        jobs = [waiting("wide", 8, waited_s=100), waiting("short", 2, time_limit_s=60), waiting("endless", 2)]
        decisions = queue.decide(jobs, [holder])
        assert queue.reservations[0].start_s == math.inf
        assert "as soon as the jobs there end: it has waited for 100 s" in told(decisions, "wide").sentence
        assert started(decisions) == []
        assert {told(decisions, name).reason for name in ("short", "endless")} == {Reason.RESERVED}

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 30)), min_size=1, max_size=12))
    def test_every_job_starts_whatever_comes_after_it(self, stream: list[tuple[int, int]]) -> None:
        """A job that wants everything, and a stream of others without limits: it starts after the bound, and after
        what was on the cluster then has ended. 30 rounds is the longest of them."""
        policy = QueuePolicy(starvation_s=20.0)
        queue = Queue(policy)
        alive: dict[str, tuple[int, object]] = {}
        for round_ in range(20 + 30 + 2):
            alive = {name: (end, r) for name, (end, r) in alive.items() if end > round_}
            size, lasts = stream[round_ % len(stream)]
            jobs = [replace(waiting("wide", 8), submitted_s=NOW_S, waited_s=float(round_))]
            jobs += [replace(waiting(f"s{round_}", size), submitted_s=NOW_S + round_)]
            on_it = [r for _, r in alive.values()]
            decisions = queue.decide(jobs, on_it, now_s=NOW_S + round_)  # type: ignore[arg-type]
            for decision in decisions:
                if isinstance(decision, Start) and decision.job_id == "wide":
                    return
                if isinstance(decision, Start):
                    holds = running(decision.job_id, decision.placement.slots, since_s=-round_)
                    alive[decision.job_id] = (round_ + lasts, holds)
        raise AssertionError("it never started")


class TestPreemption:
    LOW = running("low", slots("l0n0", "l0n1"), preemptible=True, grace_s=30.0, since_s=500)
    LATE = running("late", slots("l1n0"), preemptible=True, grace_s=10.0, since_s=5)

    def test_as_few_as_will_do_the_latest_first(self) -> None:
        queue = Queue()
        decisions = queue.decide([waiting("urgent", 4, priority=1)], [self.LOW, self.LATE])
        (order,) = [d for d in decisions if isinstance(d, Vacate)]
        assert (order.job_id, order.reason) == ("late", Reason.PREEMPTED)
        assert "gives way to urgent (urgent) of priority 1, its own is 0; it has 10 s" in order.sentence
        assert "as soon as the jobs there have saved their checkpoints" in told(decisions, "urgent").sentence
        assert queue.reservations[0].start_s == NOW_S + 10.0

    def test_never_for_equals_nor_of_jobs_that_may_not_be(self) -> None:
        firm = running("firm", slots("l1n0", "l1n1"))
        for job in (waiting("equal", 8), waiting("urgent", 8, priority=1)):
            assert not any(isinstance(d, Vacate) for d in Queue().decide([job], [self.LOW, firm]))

    def test_not_when_it_would_not_help(self) -> None:
        firm = running("firm", slots("l1n0", "l1n1"))
        decisions = Queue().decide([waiting("urgent", 5, priority=1)], [self.LOW, firm])
        assert not any(isinstance(d, Vacate) for d in decisions)

    def test_nobody_more_while_enough_are_leaving(self) -> None:
        leaving = replace(self.LATE, leaving=True)
        jobs = [waiting("urgent", 4, priority=1), waiting("other", 2)]
        decisions = Queue().decide(jobs, [self.LOW, leaving])
        assert not any(isinstance(d, Vacate) for d in decisions)
        assert started(decisions) == []
        assert told(decisions, "other").reason is Reason.RESERVED

    def test_who_waited_too_long_for_its_place_keeps_it(self) -> None:
        starved = replace(self.LATE, waited_s=86_400.0)
        decisions = Queue().decide([waiting("urgent", 4, priority=1)], [self.LOW, starved])
        assert [d.job_id for d in decisions if isinstance(d, Vacate)] == ["low"]

    def test_not_when_the_policy_forbids_it(self) -> None:
        policy = QueuePolicy(preemption=False)
        decisions = Queue(policy).decide([waiting("urgent", 4, priority=1)], [self.LOW, self.LATE])
        assert not any(isinstance(d, Vacate) for d in decisions)


def test_time_limits() -> None:
    over = running("over", slots("l0n0"), since_s=60.0, time_limit_s=60.0, grace_s=5.0)
    under = running("under", slots("l0n1"), since_s=59.0, time_limit_s=60.0)
    again = replace(under, held_s=1.0)
    assert [(v.job_id, v.reason) for v in expired([over, under], NOW_S)] == [("over", Reason.TIME_LIMIT)]
    assert [v.job_id for v in expired([again], NOW_S)] == ["under"], "earlier placements count"
    assert list(expired([replace(over, leaving=True)], NOW_S)) == []


def test_trouble_with_one_job_is_its_own() -> None:
    queue = Queue()
    broken = waiting("broken", 2, waited_s=9)
    fine = waiting("fine", 2)
    original = queue.decide
    decisions = original([broken, fine])
    assert started(decisions) == ["broken", "fine"]
    queue.fabric = Fabric(fabric().nodes)
    decisions = queue.decide([replace(broken, claim=replace(broken.claim, size=-1)), fine])
    assert isinstance(decisions[0], Undecided)
    assert started(decisions) == ["fine"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 8),
            st.sampled_from(["a", "b"]),
            st.integers(0, 2),
            st.sampled_from([None, 50.0, 5000.0]),
        ),
        max_size=10,
    )
)
def test_no_accelerator_twice_no_quota_passed_and_no_promise_broken(jobs: list[tuple]) -> None:  # type: ignore[type-arg]
    policy = QueuePolicy(projects={"a": ProjectPolicy(quota=5)}, reservations=2)
    queue = Queue(policy)
    holder = running("holder", slots("l0n0"), time_limit_s=100.0)
    queued = [
        waiting(f"j{i}", size, project=project, priority=priority, time_limit_s=limit, waited_s=i)
        for i, (size, project, priority, limit) in enumerate(jobs)
    ]
    decisions = queue.decide(queued, [holder])
    taken, by_project = list(holder.holding.slots), defaultdict(int)
    claims = {job.claim.job_id: job for job in queued}
    for decision in decisions:
        if isinstance(decision, Start):
            job = claims[decision.job_id]
            assert len(decision.placement.slots) == job.claim.size
            taken += decision.placement.slots
            by_project[job.claim.project] += job.claim.size
    assert len(taken) == len(set(taken))
    assert by_project["a"] <= 5
    assert {d.job_id for d in decisions} == set(claims), "each is answered"
    position = {d.job_id: i for i, d in enumerate(decisions)}
    for kept in queue.reservations:
        for decision in decisions:
            if isinstance(decision, Start) and position[decision.job_id] > position[kept.job_id]:
                outlasts = NOW_S + claims[decision.job_id].longest_s > kept.start_s
                assert not outlasts or set(kept.placement.slots).isdisjoint(decision.placement.slots)
