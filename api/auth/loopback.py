"""Guards a server without a token against web pages that reach for it through the user's own browser.

Two ways in: DNS rebinding (a foreign name that resolves to 127.0.0.1, seen in the Host header) and cross-site requests
(seen in Origin or Sec-Fetch-Site). With a token neither works, because no browser adds it by itself.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from api.auth.token import is_loopback
from api.problems import ProblemError, render

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class LoopbackGuard:
    """ASGI layer: 421 for a foreign Host, 403 for a writing request of a foreign page."""

    def __init__(self, app: ASGIApp, *, trusted_hosts: frozenset[str] = frozenset()) -> None:
        self.app = app
        self._trusted = trusted_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._refusal(scope) if scope["type"] == "http" else None
        if problem is None:
            await self.app(scope, receive, send)
        else:
            await render(problem, scope["path"])(scope, receive, send)

    def _refusal(self, scope: Scope) -> ProblemError | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if not self._is_ours(f"//{headers.get(b'host', '')}"):
            return ProblemError(
                421,
                "foreign-host",
                "Without a token this server answers only for localhost, 127.0.0.1 and [::1] as Host.",
            )
        if scope["method"] in _SAFE_METHODS:
            return None
        origin = headers.get(b"origin")
        foreign_origin = origin is not None and not self._is_ours(origin)
        if foreign_origin or headers.get(b"sec-fetch-site") == "cross-site":
            return ProblemError(403, "foreign-origin", "Pages of other sites may not write to this server.")
        return None

    def _is_ours(self, address: str) -> bool:
        try:
            name = urlsplit(address).hostname
        except ValueError:
            return False
        return name is not None and (name in self._trusted or is_loopback(name))
