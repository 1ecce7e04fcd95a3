"""`python -m api`: the API server, with the settings of the environment."""

from __future__ import annotations

import sys

import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from api.access_log import configure_logging
from api.app import create_app
from api.auth.token import StartRefusedError
from orchestrator.settings import InvalidSettingsError, Settings, read_settings
from orchestrator.store.migrations.upgrade import upgrade

_STREAM_GRACE_S = 3
"""How long open streams may hold up a stop; their clients come back with Last-Event-ID."""


def serve(settings: Settings) -> None:
    """Migrates the database, then serves until it is told to stop."""
    configure_logging(as_json=settings.log_json)
    app = create_app(settings)
    upgrade(settings.resolved_database_url())
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        access_log=False,  # the app writes its own, without query strings
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=_STREAM_GRACE_S,
    )


def main() -> int:
    try:
        serve(read_settings())
    except (StartRefusedError, InvalidSettingsError) as error:
        print(f"atoll: {error}", file=sys.stderr)
        return 2
    except (SQLAlchemyError, ValueError) as error:
        print(f"atoll: the database cannot be used: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
