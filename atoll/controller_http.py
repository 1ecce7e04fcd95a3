"""The controller's private endpoint: logs of living ranks, which only a Ray driver can reach.

`GET /internal/v1/logs/{job_id}?incarnation&rank[&attempt][&offset][&limit]` with `Authorization: Bearer TOKEN`, where
the token is known to the API and the controller alone. Answers JSON `{attempt, rank, offset, size, data_base64}`.
"""

from __future__ import annotations

import base64
import hmac
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import structlog

from orchestrator.lifecycle.ports import ClusterUnreachableError, GangRef, Launcher, SupervisorGoneError

PREFIX = "/internal/v1/logs/"
LARGEST_READ_BYTES = 1 << 20
SLOWEST_CLIENT_S = 15.0

log = structlog.get_logger(__name__)


class RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class PrivateEndpoint:
    """An HTTP server in a thread of its own. `launcher` gives None while there is no connection to the cluster."""

    def __init__(self, host: str, port: int, token: str, launcher: Callable[[], Launcher | None]) -> None:
        class Handler(_Handler):
            expected_token = token
            find_launcher = staticmethod(launcher)

        self._server = (_Ipv6Server if ":" in host else ThreadingHTTPServer)((host, port), Handler)
        bound = int(self._server.server_address[1])
        self.url = f"http://[{host}]:{bound}" if ":" in host else f"http://{host}:{bound}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="private-endpoint", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Ipv6Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = SLOWEST_CLIENT_S
    server_version = "atoll-controller"
    sys_version = ""
    expected_token: str
    find_launcher: Callable[[], Launcher | None]

    def do_GET(self) -> None:
        try:
            body = self._answer()
        except RefusedError as refused:
            self._send(refused.status, {"detail": str(refused)})
        except SupervisorGoneError as error:
            self._send(404, {"detail": str(error)})
        except LookupError as error:
            self._send(404, {"detail": f"no such log: {error}"})
        except ClusterUnreachableError as error:
            self._send(503, {"detail": str(error)})
        except Exception as error:
            log.exception("live-log-failed")
            self._send(500, {"detail": f"{type(error).__name__}: {error}"})
        else:
            self._send(200, body)

    def _answer(self) -> dict[str, Any]:
        self._check_token()
        parts = urlsplit(self.path)
        job_id = parts.path.removeprefix(PREFIX)
        if not parts.path.startswith(PREFIX) or not job_id or "/" in job_id:
            raise RefusedError(404, "no such path")
        query = parse_qs(parts.query)
        gang = GangRef(job_id, _number(query, "incarnation", at_least=1))
        rank = _number(query, "rank", at_least=0)
        attempt = _number(query, "attempt", at_least=1) if "attempt" in query else None
        offset = _number(query, "offset", otherwise=0)
        limit = _number(query, "limit", at_least=1, otherwise=64 << 10)
        launcher = type(self).find_launcher()
        if launcher is None:
            raise RefusedError(503, "the controller is not connected to the cluster")
        limit = min(limit, LARGEST_READ_BYTES)
        chunk = launcher.read_log(gang, rank=rank, attempt=attempt, offset=offset, limit=limit)
        return {
            "attempt": chunk.attempt,
            "rank": chunk.rank,
            "offset": chunk.offset,
            "size": chunk.size,
            "data_base64": base64.b64encode(chunk.data).decode(),
        }

    def _check_token(self) -> None:
        given = self.headers.get("Authorization", "")
        expected = f"Bearer {self.expected_token}"
        if not hmac.compare_digest(given.encode("latin-1", "replace"), expected.encode("latin-1", "replace")):
            raise RefusedError(401, "the internal token is missing or wrong")

    def _send(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        log.debug("private-request", line=format % args)


def _number(
    query: dict[str, list[str]], name: str, *, at_least: int | None = None, otherwise: int | None = None
) -> int:
    if name not in query and otherwise is not None:
        return otherwise
    text = query.get(name, [""])[-1]
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 18):
        raise RefusedError(400, f"{name}: {text[:40]!r} is not an integer")
    number = int(text)
    if at_least is not None and number < at_least:
        raise RefusedError(400, f"{name}: {number} is less than {at_least}")
    return number
