"""The command line: one file a verb."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of `atoll`: 0 done, 1 the job failed, 2 usage or input, 3 no server, 130 interrupted."""
    from atoll.cli.application import application
    from atoll.cli.messages import exit_code, report
    from atoll.errors import AtollError

    try:
        application(prog_name="atoll")
    except AtollError as error:
        report(error)
        sys.exit(exit_code(error))
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
