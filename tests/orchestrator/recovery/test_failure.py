"""Who died first: followers never hide the rank that caused it all."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.recovery.failure import Cause, NodeLoss, RankDeath, classify, lost_a_peer

RESET = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:31337"
"""As gloo 2.13 says it in a rank whose peer was killed."""
TIMED_OUT = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 15000ms for recv operation to complete"


def death(rank: int, at: float, code: int | None = None, error: str = "", traceback: str = "") -> RankDeath:
    return RankDeath(rank, f"n{rank // 2}", at, code, (error,) if error else (), traceback)


@pytest.mark.parametrize(
    ("error", "follows"),
    [
        (RESET, True),
        (TIMED_OUT, True),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", True),
        ("DistNetworkError: failed to recv, got 0 bytes", True),
        ("RuntimeError: Gloo connectFullMesh failed with Connection refused", True),
        ("ValueError: loss is nan", False),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied", False),
        ("KeyError: 'connection closed by peer'", False),
        ("OutOfMemoryError: CUDA out of memory", False),
    ],
)
def test_exceptions_that_only_follow(error: str, follows: bool) -> None:
    assert lost_a_peer(death(0, 1.0, 1, error)) is follows


def test_lost_connection_wrapped_by_the_pipeline_only_follows() -> None:
    wrapped = RankDeath(4, "n2", 0.5, 1, ("RuntimeError: ", RESET), "Failed to run stage backward ...")
    assert lost_a_peer(wrapped)
    failure = classify([wrapped, death(5, 1.0, -signal.SIGKILL)], [], settled=False)
    assert failure is not None
    assert failure.rank == 5


def test_wrapped_defect_of_the_program_is_the_cause_and_named() -> None:
    wrapped = RankDeath(4, "n2", 0.5, 1, ("RuntimeError: stage failed", "ValueError: odd"), "trace")
    failure = classify([wrapped, death(5, 0.1, 1, RESET)], [], settled=False)
    assert failure is not None
    assert failure.cause is Cause.EXCEPTION
    assert failure.summary.endswith("raised RuntimeError: stage failed from ValueError: odd")


def test_abort_by_gloo_is_a_follower_and_a_kill_is_the_cause() -> None:
    aborted = death(1, 1.0, -signal.SIGABRT)
    killed = death(5, 1.2, -signal.SIGKILL)
    failure = classify([aborted, killed, death(2, 0.9, 1, RESET)], [], settled=False)
    assert failure is not None
    assert (failure.cause, failure.rank, failure.followers) == (Cause.SIGNAL, 5, (1, 2))
    assert "SIGKILL" in failure.summary


def test_followers_alone_wait_for_the_cause_until_settled() -> None:
    deaths = [death(1, 2.0, 1, RESET), death(2, 1.0, -signal.SIGABRT)]
    assert classify(deaths, [], settled=False) is None
    failure = classify(deaths, [], settled=True)
    assert failure is not None
    assert (failure.cause, failure.rank) == (Cause.SIGNAL, 2)


def test_hang_is_named_a_timeout() -> None:
    failure = classify([death(0, 1.0, 1, TIMED_OUT)], [], settled=True)
    assert failure is not None
    assert failure.cause is Cause.TIMED_OUT


def test_first_of_two_exceptions_is_the_cause_with_its_traceback() -> None:
    later = death(0, 2.0, 1, "ValueError: b", "trace b")
    first = death(7, 1.0, None, "ValueError: a", "trace a")
    failure = classify([later, first], [], settled=False)
    assert failure is not None
    assert (failure.cause, failure.rank, failure.traceback) == (Cause.EXCEPTION, 7, "trace a")


@pytest.mark.parametrize(
    ("error", "before_ready", "cause"),
    [
        ("ValueError: data.source: no file 'x' on this node", True, Cause.INPUT),
        ("ValueError: loss is nan", False, Cause.EXCEPTION),
        ("RuntimeError: out of memory", True, Cause.EXCEPTION),
        (RESET, True, Cause.PEER_LOST),
    ],
)
def test_input_is_refused_by_a_value_error_before_ready(error: str, before_ready: bool, cause: Cause) -> None:
    failure = classify([replace(death(0, 1.0, 1, error), before_ready=before_ready)], [], settled=True)
    assert failure is not None
    assert failure.cause is cause


def test_lost_node_explains_everything() -> None:
    failure = classify(
        [death(0, 0.5, -signal.SIGKILL)], [NodeLoss("n3", 1.0), NodeLoss("n1", 2.0)], settled=False
    )
    assert failure is not None
    assert (failure.cause, failure.lost_nodes, failure.node) == (Cause.NODE_LOST, ("n1", "n3"), "n3")


def test_lost_agent_is_the_cause_of_followers_but_not_of_a_kill_elsewhere() -> None:
    loss = NodeLoss("n3", 1.0, agent_only=True)
    followed = classify([death(0, 0.5, 1, RESET)], [loss], settled=False)
    assert followed is not None
    assert (followed.cause, followed.node) == (Cause.AGENT_LOST, "n3")
    killed = classify([death(0, 0.5, -signal.SIGSEGV)], [loss], settled=False)
    assert killed is not None
    assert (killed.cause, killed.rank) == (Cause.SIGNAL, 0)


def test_silent_exit_is_a_death() -> None:
    failure = classify([death(3, 1.0, 0)], [], settled=False)
    assert failure is not None
    assert failure.cause is Cause.EXIT
    assert "exit code 0" in failure.summary


@given(st.permutations(range(8)), st.integers(min_value=0, max_value=7))
def test_one_kill_among_followers_is_found_whatever_the_order(order: list[int], victim: int) -> None:
    deaths = [
        death(rank, float(at), -signal.SIGKILL) if rank == victim else death(rank, float(at), 1, RESET)
        for at, rank in enumerate(order)
    ]
    failure = classify(deaths, [], settled=True)
    assert failure is not None
    assert failure.rank == victim
    assert failure.followers == tuple(rank for rank in range(8) if rank != victim)
