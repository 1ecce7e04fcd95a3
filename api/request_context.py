"""The outermost layer: request id, access log, counters, security headers, and the last resort for errors."""

from __future__ import annotations

import re
import time
from uuid import uuid4

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth.token import is_api_path
from api.problems import internal, render
from api.telemetry import Telemetry

REQUEST_ID = "X-Request-ID"
_CLIENT_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_log = structlog.get_logger("api.access")

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_API_POLICY = "default-src 'none'; frame-ancestors 'none'"
_UI_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Styles are inline because the component kit sets them so; scripts never are."""


class RequestContext:
    """ASGI layer. Neither headers nor query strings are logged: a token can be in the one, a secret in the other."""

    def __init__(self, app: ASGIApp, *, telemetry: Telemetry) -> None:
        self.app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _request_id(scope)
        structlog.contextvars.bind_contextvars(request_id=request_id)
        exchange = _Exchange(scope, send, request_id)
        try:
            await self.app(scope, receive, exchange.send)
        except Exception:
            _log.exception("unexpected error", method=scope["method"], path=scope["path"][:500])
            if exchange.status is None:
                await render(internal(), scope["path"])(scope, receive, exchange.send)
        finally:
            self._record(scope, exchange)
            structlog.contextvars.unbind_contextvars("request_id")

    def _record(self, scope: Scope, exchange: _Exchange) -> None:
        status = exchange.status or 499  # 499: the client left before there was an answer
        route = route_template(scope)
        self._telemetry.observe(scope["method"], route, status, exchange.time_to_answer_s())
        _log.info(
            "request",
            method=scope["method"],
            path=scope["path"][:500],
            route=route,
            status=status,
            seconds=round(time.perf_counter() - exchange.began, 4),
            client=(scope.get("client") or ("unknown",))[0],
        )


class _Exchange:
    """One request: adds the headers to its answer and remembers status and times."""

    def __init__(self, scope: Scope, send: Send, request_id: str) -> None:
        self.began = time.perf_counter()
        self.status: int | None = None
        self._answered: float | None = None
        self._send = send
        self._request_id = request_id
        self._is_api = is_api_path(scope["path"])

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._answered = time.perf_counter()
            headers = MutableHeaders(scope=message)
            headers[REQUEST_ID] = self._request_id
            for name, value in _HEADERS.items():
                headers[name] = value
            headers["Content-Security-Policy"] = _API_POLICY if self._is_api else _UI_POLICY
            if self._is_api:
                headers.setdefault("Cache-Control", "no-store")
        await self._send(message)

    def time_to_answer_s(self) -> float:
        """Seconds to the first byte of the answer: a stream would otherwise count as one slow request."""
        return (self._answered or time.perf_counter()) - self.began


def _request_id(scope: Scope) -> str:
    """The client's id when it is harmless in a log line, else a new one."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID.lower().encode() and _CLIENT_REQUEST_ID.fullmatch(value):
            return str(value.decode("ascii"))
    return uuid4().hex


def route_template(scope: Scope) -> str:
    """`/api/v1/jobs/{job_id}` instead of the path: few values, whatever clients ask for."""
    route = scope.get("route")
    path = getattr(route, "path", None)
    if isinstance(path, str):
        return path
    return "unmatched" if is_api_path(scope["path"]) else "web"
