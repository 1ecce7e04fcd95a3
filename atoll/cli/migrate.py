"""`atoll migrate`: brings the database to the newest tables."""

from __future__ import annotations

from typing import Annotated

import typer

from atoll.cli.messages import standard_error


def migrate(
    database_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Database. (default: DATABASE_URL, or SQLite in the state directory)"
        ),
    ] = None,
) -> None:
    """Creates or updates the tables of the database; `atoll serve` does it by itself."""
    from atoll.preflight import prepare_database
    from atoll.serve import settings_for

    prepare_database(settings_for(database_url=database_url))
    standard_error().print("The database has the newest tables.")
