"""The server itself: cluster, job schema, version, health, readiness, numbers for Prometheus."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from alembic.runtime.migration import MigrationContext
from fastapi import APIRouter, Path, Query, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import JSONResponse, Response

from api.dependencies import LARGEST_ID, DatabaseOf
from api.problems import answers
from api.schemas.cluster import ClusterView, CordonRequest, CordonView, Health, Version
from api.schemas.queue import QueueView
from api.telemetry import CONTENT_TYPE, Telemetry
from api.version import build_information
from api.views.cluster import cluster_view, cordon_view
from api.views.queue import queue_view
from orchestrator.spec.schema import json_schema
from orchestrator.store import cordons, nodes
from orchestrator.store.engine import Database
from orchestrator.store.migrations.upgrade import newest_revision

router = APIRouter()
probes = APIRouter(tags=["service"])

NodeName = Annotated[
    str, Path(max_length=255, description="Name of the node, as `GET /api/v1/cluster` gives it.")
]


@router.get(
    "/api/v1/cluster",
    tags=["cluster"],
    operation_id="getCluster",
    response_model=ClusterView,
    responses=answers(503),
)
def cluster(database: DatabaseOf) -> Response:
    """Nodes and slots as the controller last saw them, who holds what, and whether controller and Ray are up."""
    with database.read() as session:
        seen = cluster_view(session, now=database.now())
    # Written by pydantic itself: for 10,000 slots ten times as fast as by way of Python values.
    return Response(seen.model_dump_json(), media_type="application/json")


@router.put(
    "/api/v1/nodes/{name}/cordon",
    tags=["cluster"],
    operation_id="cordonNode",
    responses=answers(400, 404, 413, 415, 422, 503),
)
def cordon_node(name: NodeName, wanted: CordonRequest, database: DatabaseOf) -> CordonView:
    """No job is placed on the node any more; ranks that run there stay. One that is cordoned stays as it is."""
    with database.write() as session:
        nodes.get(session, name)
        return cordon_view(
            cordons.put(session, name, at=database.now(), who="operator", reason=wanted.reason)
        )


@router.delete(
    "/api/v1/nodes/{name}/cordon",
    tags=["cluster"],
    operation_id="uncordonNode",
    responses=answers(422, 503),
)
def uncordon_node(name: NodeName, database: DatabaseOf) -> None:
    """The node takes work again, where nothing else forbids it. Asking again changes nothing."""
    with database.write() as session:
        cordons.lift(session, name)


@router.get("/api/v1/queue", tags=["queue"], operation_id="getQueue", responses=answers(422, 503))
def queue(
    database: DatabaseOf,
    limit: Annotated[int, Query(ge=1, le=200, description="Jobs a page.")] = 50,
    after: Annotated[int, Query(ge=0, le=LARGEST_ID, description="Only jobs behind this position.")] = 0,
) -> QueueView:
    """Jobs that wait, in the order in which the controller looks at them, and what each project holds and may hold."""
    with database.read() as session:
        return queue_view(session, after=after, limit=limit, now=database.now())


@router.get("/api/v1/schema", tags=["service"], operation_id="getJobSchema", responses=answers())
def schema() -> dict[str, Any]:
    """JSON Schema of a job file."""
    return json_schema()


@router.get("/api/v1/version", tags=["service"], operation_id="getVersion", responses=answers())
def version() -> Version:
    information = build_information()
    return Version(version=information.version, python=information.python)


@router.get(
    "/metrics",
    tags=["service"],
    operation_id="getPrometheusMetrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus text format.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **answers(),
    },
)
def metrics(request: Request) -> Response:
    """Numbers for Prometheus."""
    telemetry: Telemetry = request.app.state.telemetry
    return Response(telemetry.exposition(), headers={"Content-Type": CONTENT_TYPE})


@probes.get("/healthz", operation_id="getHealth", responses=answers())
def health() -> Health:
    """This process answers. Says nothing of the database: restarting the server would not mend that."""
    return Health(status="ok")


@probes.get(
    "/readyz",
    operation_id="getReadiness",
    responses={
        **answers(),
        503: {"model": Health, "description": "The database is out of reach or not migrated."},
    },
)
def ready(database: DatabaseOf) -> Any:
    """The database answers and has this version's tables."""
    try:
        problems = (
            []
            if _is_migrated(database)
            else ["The database has another version's tables: run the migrations."]
        )
    except SQLAlchemyError:
        problems = ["The database does not answer."]
    if not problems:
        return Health(status="ready")
    return JSONResponse(Health(status="not-ready", problems=problems).model_dump(), status_code=503)


def _is_migrated(database: Database) -> bool:
    """Reads only, without the lock that migrations take."""
    with database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision() == _expected_revision()


@cache
def _expected_revision() -> str | None:
    return newest_revision()
