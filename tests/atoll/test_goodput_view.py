"""What `atoll goodput` prints: shares of what was held, what nobody measured, and each repair."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console

from atoll.answers import Goodput, Repair
from atoll.cli.goodput import print_goodput

AT = datetime(2026, 5, 4, tzinfo=UTC)


def printed(found: Goodput) -> list[str]:
    console = Console(width=120, record=True, highlight=False, file=None)
    with console.capture() as captured:
        print_goodput(console, found)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_classes_and_repairs() -> None:
    repair = Repair(
        fault="rank-died",
        message="",
        attempt=1,
        step=46,
        rung="in-place",
        last_step_at=AT,
        told_at=AT,
        settled_at=AT,
        trained_at=AT,
        stepped_at=None,
        given_up=False,
        seconds={"unnoticed": 1.0, "settling": 0.25, "repair": 2.5},
    )
    found = Goodput(
        gpus=2,
        until=AT,
        gpu_seconds={
            "useful-compute": 60.0,
            "bubble": None,
            "data-wait": 0.0,
            "lost-work": 20.0,
            "queued": 8.0,
        },
        unmeasured_gpu_seconds={"bubble": 60.0},
        held_gpu_seconds=80.0,
        total_gpu_seconds=88.0,
        goodput=0.75,
        ettr=0.68,
        repairs=[repair],
    )
    assert printed(found) == [
        "2 GPUs, 80.0 GPU-seconds held: 75.0% useful; effective training time ratio 68.0%",
        "CLASS            GPU-SECONDS     SHARE",
        f"useful-compute          60.0     75.0%  {'█' * 30}",
        "bubble          not measured            in useful-compute",
        f"lost-work               20.0     25.0%  {'█' * 10}",
        "queued                   8.0  not held",
        "FAULT      STEP  REPAIR    UNNOTICED  SETTLING  REPAIRING  FIRST STEP",
        "rank-died    46  in-place     1.00 s    0.25 s     2.50 s           –",
    ]
