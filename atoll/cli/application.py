"""The verbs, put together."""

from __future__ import annotations

import typer

from atoll.cli.cancel import cancel
from atoll.cli.cordon import cordon, uncordon
from atoll.cli.data import data
from atoll.cli.demo import demo
from atoll.cli.events import events
from atoll.cli.export import export
from atoll.cli.fabric import fabric
from atoll.cli.generate import generate
from atoll.cli.goodput import goodput
from atoll.cli.health import health
from atoll.cli.list import list_jobs
from atoll.cli.logs import logs
from atoll.cli.migrate import migrate
from atoll.cli.model import model
from atoll.cli.plan import plan
from atoll.cli.serve import serve
from atoll.cli.simulate import simulate
from atoll.cli.snapshot import snapshot
from atoll.cli.status import status
from atoll.cli.straggler import straggler
from atoll.cli.submit import submit
from atoll.cli.timeline import timeline
from atoll.cli.verify import verify
from atoll.cli.version import version

application = typer.Typer(
    name="atoll",
    help="Trains large models on GPU clusters: ranks placed by network topology, run on Ray, repaired when they die.",
    epilog="Exit codes: 0 done · 1 the job failed · 2 wrong usage or input · 3 server or cluster unreachable.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

application.command("serve")(serve)
application.command("submit")(submit)
application.command("list")(list_jobs)
application.command("status")(status)
application.command("logs")(logs)
application.command("events")(events)
application.command("timeline")(timeline)
application.command("goodput")(goodput)
application.command("health")(health)
application.command("export")(export)
application.command("generate")(generate)
application.command("model")(model)
application.command("cancel")(cancel)
application.command("cordon")(cordon)
application.command("uncordon")(uncordon)
application.command("plan")(plan)
application.command("simulate")(simulate)
application.command("snapshot")(snapshot)
application.command("verify")(verify)
application.command("straggler")(straggler)
application.command("demo")(demo)
application.add_typer(data)
application.add_typer(fabric)
application.command("migrate")(migrate)
application.command("version")(version)
