"""The application: routers, the layers in front of them, and what they share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial

from fastapi import Depends, FastAPI
from starlette.middleware.gzip import GZipMiddleware

from api import openapi, problems
from api.auth.loopback import LoopbackGuard
from api.auth.token import TokenGuard, require_principal, resolve_token
from api.events import StreamSlots
from api.live_logs import LiveLogs
from api.request_context import RequestContext
from api.routers import goodput, health, history, jobs, logs, plan, service, timelines
from api.searches import Searches
from api.telemetry import Telemetry
from api.web import WebShell
from orchestrator.settings import Settings
from orchestrator.store.engine import open_database

_DESCRIPTION = (
    "Trains large models on GPU clusters. Errors are RFC 9457 problems. Lists are paged by cursor. "
    "Streams are server-sent events that go on after `Last-Event-ID`."
)


def create_app(settings: Settings, *, trusted_hosts: Iterable[str] = ()) -> FastAPI:
    """The app for these settings. Connects to nothing yet. StartRefusedError when it would be open to strangers.

    `trusted_hosts`: names besides loopback that a server without a token answers for.
    """
    token = resolve_token(settings)
    app = FastAPI(
        title="Atoll",
        version="1",
        description=_DESCRIPTION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # the pages FastAPI offers load their scripts from another site
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.settings = settings
    app.state.database = open_database(settings.resolved_database_url())
    app.state.telemetry = Telemetry(app.state.database)
    app.state.stream_slots = StreamSlots(app.state.telemetry.streams)
    app.state.live_logs = LiveLogs(app.state.database, settings.internal_token)
    app.state.searches = Searches()
    app.openapi = partial(openapi.describe, app)  # type: ignore[method-assign]

    authenticated = [Depends(require_principal)]
    for router in (
        jobs.router,
        history.router,
        timelines.router,
        goodput.router,
        health.router,
        logs.router,
        plan.router,
        service.router,
    ):
        app.include_router(router, dependencies=authenticated)
    app.include_router(service.probes)
    problems.install(app)

    # The last one added is the outermost.
    app.add_middleware(GZipMiddleware, minimum_size=2048, compresslevel=5)  # leaves text/event-stream alone
    app.add_middleware(WebShell)
    app.add_middleware(TokenGuard, token=token)
    if token is None:
        app.add_middleware(LoopbackGuard, trusted_hosts=frozenset(trusted_hosts))
    app.add_middleware(RequestContext, telemetry=app.state.telemetry)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.live_logs.close()
    app.state.database.close()
