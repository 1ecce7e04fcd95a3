"""Who is missing: standings written down by hand, as ranks of known plans would leave them."""

from __future__ import annotations

from typing import Any

from orchestrator.health.hang import STACK_LIMIT, explain
from orchestrator.health.standing import Channel, Standing, Wait

STACK = """Thread 0x00007f00aa (most recent call first):
  File "/lib/python3.11/threading.py", line 327 in wait

Current thread 0x00007f00bb (most recent call first):
  File "/home/me/model.py", line 41 in spin
  File "/home/me/model.py", line 12 in forward
"""
WORLD = (0, 1, 2, 3)


def group(name: str, axis: str, ranks: tuple[int, ...], issued: int, kind: str = "all-reduce") -> Channel:
    return Channel(name, axis, ranks, issued, kind)


def standing(rank: int, *channels: Channel, wait: Wait | None = None, **fields: Any) -> Standing:
    return Standing(
        rank,
        f"n{rank // 2}",
        wait=wait,
        channels=channels,
        **{"step": 6, "moves": 9, "still_s": 31.0 + rank, "phase": "step", "state": "S", **fields},
    )


def test_the_rank_that_did_not_begin_the_collective_is_missing() -> None:
    found = explain(
        [
            standing(rank, group("1", "dp", WORLD, 5), wait=Wait("1", 5))
            if rank != 2
            else standing(2, group("1", "dp", WORLD, 4), state="R", stack=STACK)
            for rank in WORLD
        ],
        limit_s=30.0,
    )
    assert found.missing == (2,)
    assert found.summary == (
        "no rank got on for 31 s after step 6: rank 2 on n1 is missing in the all-reduce of axis dp "
        "(ranks 0, 1, 2, 3), was found in spin (model.py, line 41); ranks 0, 1, 3 wait"
    )
    assert found.stack == STACK


def test_who_waits_for_the_missing_one_is_not_missing_himself() -> None:
    """tp 2 x dp 2: rank 3 is stuck, its tensor partner 2 waits for it in tp, and so is late in dp, where 0 waits."""
    found = explain(
        [
            standing(0, group("tp0", "tp", (0, 1), 8), group("dp0", "dp", (0, 2), 3), wait=Wait("dp0", 3)),
            standing(1, group("tp0", "tp", (0, 1), 8), group("dp1", "dp", (1, 3), 3), wait=Wait("dp1", 3)),
            standing(2, group("tp1", "tp", (2, 3), 8), group("dp0", "dp", (0, 2), 2), wait=Wait("tp1", 8)),
            standing(3, group("tp1", "tp", (2, 3), 7), group("dp1", "dp", (1, 3), 2)),
        ],
        limit_s=30.0,
    )
    assert found.missing == (3,)
    assert "; ranks 0, 1, 2 wait" in found.summary


def test_a_receiver_waits_for_the_sender_of_its_message() -> None:
    """Three pipeline stages: stage 0 sent nothing to 1 since message 4, so 1 has nothing for 2."""
    found = explain(
        [
            standing(0, group("pp 0>1", "pp", (0, 1), 4, "send")),
            standing(
                1,
                group("pp 0>1", "pp", (0, 1), 5, "receive"),
                group("pp 1>2", "pp", (1, 2), 4, "send"),
                wait=Wait("pp 0>1", 5),
            ),
            standing(2, group("pp 1>2", "pp", (1, 2), 5, "receive"), wait=Wait("pp 1>2", 5)),
        ],
        limit_s=30.0,
    )
    assert found.missing == (0,)
    assert "is missing in the receive of axis pp (ranks 0, 1)" in found.summary


def test_an_older_collective_is_waited_for_by_its_number() -> None:
    """Rank 0 has begun five and waits for the third: rank 1 has begun four, so it is not that one that is missing."""
    found = explain(
        [
            standing(0, group("1", "dp", (0, 1, 2), 5), wait=Wait("1", 3)),
            standing(1, group("1", "dp", (0, 1, 2), 4), wait=Wait("1", 4)),
            standing(2, group("1", "dp", (0, 1, 2), 2)),
        ],
        limit_s=30.0,
    )
    assert found.missing == (2,)


def test_a_rank_that_never_met_the_group_is_missing() -> None:
    found = explain([standing(0, group("1", "dp", (0, 1), 1), wait=Wait("1", 1)), standing(1)], limit_s=30.0)
    assert found.missing == (1,)


def test_a_stopped_process_is_missing_even_inside_a_collective() -> None:
    """It was stopped after it had begun: the counts are equal, the kernel knows."""
    found = explain(
        [standing(r, group("1", "dp", (0, 1), 5), wait=Wait("1", 5), state="ST"[r]) for r in (0, 1)],
        limit_s=30.0,
    )
    assert found.missing == (1,)
    assert "rank 1 on n0 is stopped by a signal; rank 0 waits" in found.summary


def test_a_process_in_the_kernel_is_told_as_such() -> None:
    found = explain(
        [standing(0, group("1", "dp", (0, 1), 5), wait=Wait("1", 5)), standing(1, state="D")], limit_s=30.0
    )
    assert "rank 1 on n0 is blocked in the kernel, as by a file system that does not answer" in found.summary


def test_all_in_one_collective_is_the_network() -> None:
    found = explain(
        [standing(r, group("1", "dp", (0, 1), 5), wait=Wait("1", 5)) for r in (0, 1)], limit_s=30.0
    )
    assert found.missing == ()
    assert (
        "all of them wait in the same all-reduce of axis dp (ranks 0, 1), as when the network fails"
        in found.summary
    )


def test_collectives_begun_in_different_order_are_a_deadlock() -> None:
    a, b = (lambda n: group("a", "tp", (0, 1), n)), (lambda n: group("b", "dp", (0, 1), n))
    found = explain(
        [standing(0, a(1), b(0), wait=Wait("a", 1)), standing(1, a(0), b(1), wait=Wait("b", 1))], limit_s=30.0
    )
    assert found.missing == ()
    assert "in different collectives, for one another" in found.summary


def test_nobody_waits_when_all_are_in_code_of_their_own() -> None:
    found = explain([standing(r, state="R", stack=STACK) for r in (0, 1)], limit_s=30.0)
    assert found.missing == ()
    assert "none waits for another; rank 0 in spin (model.py, line 41); rank 1 in spin" in found.summary
    assert found.data["stacks"] == [
        {"ranks": [0, 1], "stack": STACK.replace("0x00007f00aa", "0x").replace("0x00007f00bb", "0x")}
    ]


def test_what_is_kept_is_bounded() -> None:
    many = tuple(range(2000))
    found = explain(
        [
            standing(
                r,
                group("1", "dp", many, 5),
                wait=Wait("1", 5) if r != 1999 else None,
                stack="x" * 100_000 if r == 1999 else f'  File "{"y" * 10_000}", line {r} in f\n',
            )
            for r in many
        ],
        limit_s=30.0,
    )
    assert found.missing == (1999,), "nobody is late, but one is inside of no collective"
    assert found.data["ranks"][0]["rank"] == 1999
    assert "1999 ranks wait" in found.summary
    assert len(str(found.data)) < 600_000
    assert len(found.stack) == STACK_LIMIT, "it becomes part of the job's message"
