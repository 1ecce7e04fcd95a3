"""Errors as RFC 9457 problems: one shape for every answer that is no success."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import sqlalchemy.exc
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from api.schemas.cluster import Problem
from orchestrator.spec.violations import Violation
from orchestrator.store.errors import (
    IdempotencyConflictError,
    InvalidCursorError,
    JobAlreadyEndedError,
    JobNotFoundError,
    NodeNotFoundError,
    StoreError,
    is_full,
)

MEDIA_TYPE = "application/problem+json"

_SHOWN_VALUE_CHARACTERS = 200
_LARGEST_EXACT_INTEGER = 2**53
"""JSON readers that use doubles lose integers above this (RFC 8259, section 6)."""

_MEANINGS: dict[int, str] = {
    400: "The request cannot be read.",
    401: "The bearer token is missing or wrong.",
    403: "A page of another site sent this request.",
    404: "There is no such thing.",
    409: "The request contradicts what is there.",
    413: "The body is larger than this server takes.",
    415: "The body has a type this route does not read.",
    421: "The Host header names a machine this server does not answer for.",
    422: "The request has values that cannot be taken; `violations` lists every one.",
    500: "An error inside the server; its log has the request id.",
    503: "The database, the controller, a free stream or time for a search is missing just now; try again.",
}

EVERYWHERE = (401, 403, 421, 500)
"""Statuses any route can answer: they come from the layers in front of the routers."""


class ProblemError(Exception):
    """Ends a request with a problem."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        violations: Sequence[Violation] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.violations = tuple(violations)
        self.headers = dict(headers or {})


def invalid(violations: Sequence[Violation], *, code: str = "invalid-request") -> ProblemError:
    """422 with every violation; the first ones are told in the detail too."""
    told = "; ".join(f"{v.field}: {v.message}" if v.field else v.message for v in violations[:3])
    more = f"; and {len(violations) - 3} more" if len(violations) > 3 else ""
    return ProblemError(422, code, told + more, violations=violations)


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route: these statuses and those that every route can answer, each as a problem."""
    found = sorted({*statuses, *EVERYWHERE})
    return {
        status: {"description": _MEANINGS[status], "content": {MEDIA_TYPE: {"schema": PROBLEM_REFERENCE}}}
        for status in found
    }


PROBLEM_REFERENCE = {"$ref": "#/components/schemas/Problem"}


def presentable(value: Any) -> str | int | float | bool | None:
    """A refused value as it may be shown: short, valid Unicode, no number that JSON readers would change."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= _LARGEST_EXACT_INTEGER:
        return value
    if isinstance(value, int):
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, Mapping):
        return f"an object of {len(value)} keys"
    return clean_text(str(value), _SHOWN_VALUE_CHARACTERS)


def clean_text(text: str, limit: int) -> str:
    """`text` cut to `limit` characters, with lone surrogates and NUL made visible."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return cut.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")


def render(problem: ProblemError, instance: str | None) -> Response:
    body = Problem.model_validate(
        {
            "type": f"urn:atoll:problem:{problem.code}",
            "title": HTTPStatus(problem.status).phrase,
            "status": problem.status,
            "detail": clean_text(problem.detail, 4000),
            "instance": None if instance is None else clean_text(instance, 1000),
            "violations": [
                {
                    "field": clean_text(v.field, _SHOWN_VALUE_CHARACTERS),
                    "value": presentable(v.value),
                    "message": clean_text(v.message, 1000),
                }
                for v in problem.violations
            ],
        }
    )
    return Response(
        json.dumps(body.model_dump(mode="json")),
        status_code=problem.status,
        headers=problem.headers,
        media_type=MEDIA_TYPE,
    )


def from_validation(error: RequestValidationError) -> ProblemError:
    """FastAPI's findings about path, query and header values, with the place first: `query.limit`."""
    return invalid(
        [
            Violation(
                field=".".join(str(part) for part in found["loc"]),
                value=found.get("input"),
                message=str(found["msg"]),
            )
            for found in error.errors()
        ]
    )


def from_store(error: StoreError) -> ProblemError:
    """What the store refuses because of what the client asked; anything else of it is an error in the server."""
    match error:
        case JobNotFoundError(job_id=job_id):
            return ProblemError(404, "no-such-job", f"There is no job {clean_text(job_id, 80)}.")
        case NodeNotFoundError(name=name):
            return ProblemError(404, "no-such-node", f"There is no node {clean_text(name, 80)}.")
        case JobAlreadyEndedError():
            return ProblemError(409, "job-already-ended", f"{str(error)[:1].upper()}{str(error)[1:]}.")
        case IdempotencyConflictError():
            return ProblemError(409, "idempotency-conflict", f"{error}.")
        case InvalidCursorError(cursor=cursor):
            message = "is no cursor of this list; use `next_cursor` of the page before"
            return invalid([Violation("query.cursor", cursor, message)])
        case _:
            return internal()


def from_http(error: HTTPException, request: Request) -> ProblemError:
    """What Starlette raises by itself: unknown routes and methods."""
    if error.status_code == 404:
        return ProblemError(404, "not-found", "There is no such route; /api/v1/openapi.json lists them all.")
    if error.status_code == 405:
        allowed = ", ".join(_methods_at(request))
        return ProblemError(
            405, "method-not-allowed", f"This route answers {allowed} only.", headers={"Allow": allowed}
        )
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
    return ProblemError(error.status_code, code, error.detail, headers=error.headers)


def _methods_at(request: Request) -> list[str]:
    """Every method of the path, as RFC 9110 (15.5.6) wants; Starlette names those of the first route only."""
    parts = request.url.path.split("/")
    found: set[str] = set()
    for template, operations in request.app.openapi()["paths"].items():
        wanted = template.split("/")
        if len(wanted) == len(parts) and all(
            w == p or w.startswith("{") for w, p in zip(wanted, parts, strict=True)
        ):
            found.update(method.upper() for method in operations)
    return sorted(found) or ["GET"]


def database_down() -> ProblemError:
    return ProblemError(
        503,
        "database-unavailable",
        "The database does not answer; jobs keep running without it. Try again in a moment.",
        headers={"Retry-After": "2"},
    )


def database_full() -> ProblemError:
    return ProblemError(
        503,
        "database-unavailable",
        "The database has no room left on its disk: it can be read, but nothing can be stored, and no job starts, "
        "until there is. Jobs that run keep running.",
        headers={"Retry-After": "30"},
    )


def internal() -> ProblemError:
    """500: says nothing of the inside; the log has the traceback under the request id."""
    return ProblemError(
        500, "internal", "An error inside the server. Its log has more under this request's id."
    )


def install(app: FastAPI) -> None:
    """Makes every error of `app` a problem."""

    async def on_problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, ProblemError)
        return render(error, request.url.path)

    async def on_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return render(from_validation(error), request.url.path)

    async def on_store(request: Request, error: Exception) -> Response:
        assert isinstance(error, StoreError)
        return render(from_store(error), request.url.path)

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return render(from_http(error, request), request.url.path)

    async def on_database(request: Request, error: Exception) -> Response:
        return render(database_full() if is_full(error) else database_down(), request.url.path)

    app.add_exception_handler(ProblemError, on_problem)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(StoreError, on_store)
    for unavailable in (
        sqlalchemy.exc.OperationalError,
        sqlalchemy.exc.InterfaceError,
        sqlalchemy.exc.TimeoutError,
    ):
        app.add_exception_handler(unavailable, on_database)
