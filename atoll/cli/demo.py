"""`atoll demo`: a whole job on this machine, with a rank killed half-way."""

from __future__ import annotations

import signal

import typer
from rich.console import Console

from atoll.cli.messages import INTERRUPTED, JOB_FAILED, report


def demo() -> None:
    """Trains the demo job on a local cluster, kills a rank half-way, shows the recovery."""
    from atoll.demo import DemoFailedError, run
    from atoll.demo_view import DemoView

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with DemoView(Console(highlight=False, emoji=False)) as view:
            run(view)
    except DemoFailedError as error:
        report(error)
        raise typer.Exit(JOB_FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
