"""One bearer token for the whole server; users and roles come later on the same seam, `Principal`.

The check is a layer in front of every route, so that no route can be added without it; `require_principal` states it
again in OpenAPI and refuses a request that came round the layer.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from api.problems import ProblemError, render
from orchestrator.settings import Settings

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Probes of a container platform carry no token; these two tell nothing but up or down."""


class StartRefusedError(ValueError):
    """The settings would open the server to strangers, or name a token that cannot be read."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sent the request."""

    name: str


LOCAL = Principal("local")
"""Anyone on this machine: the server listens on loopback and has no token."""
BEARER = Principal("token")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def resolve_token(settings: Settings) -> SecretStr | None:
    """The token in use, or None on loopback without one. StartRefusedError says what to set."""
    token = settings.token
    if settings.token_file is not None:
        if token is not None:
            raise StartRefusedError("token and token_file are both set; keep one of them")
        try:
            token = SecretStr(settings.token_file.read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise StartRefusedError(f"token_file {settings.token_file} cannot be read: {reason}") from None
    if token is not None and not _is_usable(token.get_secret_value()):
        raise StartRefusedError("the token must be 1 to 512 visible ASCII characters without spaces")
    if token is None and not is_loopback(settings.host):
        raise StartRefusedError(
            f"listening on {settings.host or 'every address'} needs a bearer token: set ATOLL_TOKEN_FILE (or "
            "ATOLL_TOKEN), or listen on 127.0.0.1"
        )
    return token


def _is_usable(token: str) -> bool:
    return 0 < len(token) <= 512 and all("!" <= character <= "~" for character in token)


class TokenGuard:
    """ASGI layer: every path outside `OPEN_PATHS` and the web UI's own files needs the token when there is one."""

    def __init__(self, app: ASGIApp, *, token: SecretStr | None) -> None:
        self.app = app
        self._digest = None if token is None else sha256(token.get_secret_value().encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        principal = LOCAL if self._digest is None else self._authenticate(scope)
        if principal is None and needs_token(scope["path"]):
            await render(_unauthorized(), scope["path"])(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = principal
        await self.app(scope, receive, send)

    def _authenticate(self, scope: Scope) -> Principal | None:
        """Compared by digest: equal lengths, so the time tells neither content nor length."""
        assert self._digest is not None
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(sent) != 1:
            return None
        scheme, _, credentials = sent[0].partition(b" ")
        matches = hmac.compare_digest(sha256(credentials.strip()).digest(), self._digest)
        return BEARER if matches and scheme.lower() == b"bearer" else None


def is_api_path(path: str) -> bool:
    """True for what the server answers itself; everything else is the web UI's."""
    return path in OPEN_PATHS or path == "/metrics" or path == "/api" or path.startswith("/api/")


def needs_token(path: str) -> bool:
    return is_api_path(path) and path not in OPEN_PATHS


def _unauthorized() -> ProblemError:
    return ProblemError(
        401,
        "unauthorized",
        "This server needs its bearer token: send `Authorization: Bearer TOKEN`.",
        headers={"WWW-Authenticate": 'Bearer realm="atoll"'},
    )


_scheme = HTTPBearer(
    auto_error=False, description="The server's token; not needed on loopback when the server has none."
)


def require_principal(request: Request, _: Annotated[object, Depends(_scheme)]) -> Principal:
    principal = getattr(request.state, "principal", None)
    if not isinstance(principal, Principal):
        raise _unauthorized()
    return principal
