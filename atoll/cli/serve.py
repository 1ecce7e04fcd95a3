"""`atoll serve`: the control plane on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from atoll.cli.connection import TokenFile, read_token
from atoll.cli.messages import standard_error
from atoll.errors import AtollError


class ShapeError(AtollError):
    """A --local value that is no shape."""


def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. (default: ATOLL_HOST, or 127.0.0.1)")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port; 0 takes a free one. (default: ATOLL_PORT, or 8750)"),
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Database. (default: DATABASE_URL, or SQLite in the state directory)"
        ),
    ] = None,
    storage_directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Checkpoints; every node must see it. (default: jobs/ in the state directory)"
        ),
    ] = None,
    state_directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Local state. (default: ATOLL_STATE_DIRECTORY, or .atoll)"),
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Ray cluster to join. (default: RAY_ADDRESS)")
    ] = None,
    local: Annotated[
        str | None,
        typer.Option(
            metavar="LxNxS", help="Start a Ray cluster here: leaf switches x nodes each x CPU slots each."
        ),
    ] = None,
    fabric_file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Topology that Ray's labels do not say, in any format of `atoll fabric show`; may be given several "
            "times, also as NODES=FILE. (default: ATOLL_FABRIC_FILE, or none)",
        ),
    ] = None,
    user_code: Annotated[
        bool | None,
        typer.Option(
            "--user-code/--no-user-code",
            help="Take or refuse jobs with code of their own (model.import). (default: ATOLL_USER_CODE, or take)",
        ),
    ] = None,
    queue_policy_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Quotas, weights and bounds of the queue, YAML. (default: ATOLL_QUEUE_POLICY_FILE, or none)",
        ),
    ] = None,
    token_file: TokenFile = None,
) -> None:
    """Runs API, web UI and controller until it is told to stop (SIGTERM or Ctrl-C)."""
    from actors.local_cluster import Shape
    from atoll.serve import serve as run
    from atoll.serve import settings_for

    console = standard_error()
    if local is not None and ray_address is not None:
        raise ShapeError("--local and --ray-address are two answers to one question: give one of them")
    try:
        shape = Shape.parse(local) if local is not None else None
    except ValueError as error:
        raise ShapeError(f"--local {local}: {error}") from None
    settings = settings_for(
        host=host,
        port=port,
        database_url=database_url,
        storage_directory=storage_directory,
        state_directory=state_directory,
        ray_address=ray_address,
        fabric_file=os.pathsep.join(fabric_file) if fabric_file else None,
        user_code=user_code,
        queue_policy_file=queue_policy_file,
        token_file=token_file,
    )
    token = settings.token.get_secret_value() if settings.token else None
    if settings.token_file is not None:
        token = read_token(settings.token_file)
    code = run(settings, shape, token, lambda line: console.print(escape(line)))
    raise typer.Exit(code)
