"""HTTP to the API: retries within a budget, problems as exceptions, server-sent events that reconnect."""

from __future__ import annotations

import ipaddress
import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from atoll.errors import FieldViolation, NotAtollError, ProblemError, ServerUnreachableError

RETRIED_STATUSES = frozenset({429, 502, 503, 504})
FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 3.0
STREAM_SILENCE_S = 45.0
"""A living stream sends a comment every 10 s; four missed ones mean a dead connection."""


class Backoff:
    """Delays that double, with jitter, until the budget of seconds since the first failure is spent."""

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._deadline: float | None = None
        self._delay_s = FIRST_DELAY_S

    def wait(self) -> bool:
        """Sleeps before the next try; False, at once, when the budget does not allow another."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._budget_s
        delay_s = self._delay_s * random.uniform(0.75, 1.25)
        if now + delay_s > self._deadline:
            self._deadline = now  # spent, however short the next delay would be
            return False
        time.sleep(delay_s)
        self._delay_s = min(self._delay_s * 2, LONGEST_DELAY_S)
        return True

    def reset(self) -> None:
        """Something worked: the next failure starts with a whole budget."""
        self._deadline = None
        self._delay_s = FIRST_DELAY_S


class Transport:
    """One server. Thread-safe for plain requests, as `httpx2.Client` is."""

    def __init__(self, url: str, token: str | None, *, timeout_s: float, retry_budget_s: float) -> None:
        self.url = url.rstrip("/")
        self._retry_budget_s = retry_budget_s
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            parsed = httpx2.URL(self.url)
        except httpx2.InvalidURL as error:
            raise NotAtollError(
                f"{url!r} is no URL ({error}); one looks like http://127.0.0.1:8750"
            ) from None
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise NotAtollError(
                f"{url!r} is no http:// or https:// URL; one looks like http://127.0.0.1:8750"
            )
        self._client = httpx2.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx2.Timeout(timeout_s),
            follow_redirects=False,
            trust_env=not is_loopback(parsed.host),  # a proxy cannot reach this machine's loopback
        )

    def close(self) -> None:
        self._client.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The JSON answer. Only for calls that may be sent twice: every one this client makes is safe or idempotent."""
        backoff = Backoff(self._retry_budget_s)
        given = {name: value for name, value in (params or {}).items() if value is not None}
        while True:
            try:
                response = self._client.request(
                    method, path, params=given, json=body, headers=dict(headers or {})
                )
            except httpx2.TransportError as error:
                if backoff.wait():
                    continue
                raise unreachable(self.url, error) from None
            if response.status_code in RETRIED_STATUSES and backoff.wait():
                continue
            return parsed_answer(response, self.url)

    def follow(
        self, path: str, *, params: Mapping[str, Any] | None = None, last_id: str = ""
    ) -> Iterator[Any]:
        """The data of every event of a stream, each once, until the server says `end`.

        Reconnects with Last-Event-ID when the connection breaks; the budget is whole again after every event.
        """
        backoff = Backoff(self._retry_budget_s)
        given = {name: value for name, value in (params or {}).items() if value is not None}
        while True:
            error: Exception | None = None
            try:
                with self._connected(path, given, last_id) as source:
                    for event in source:
                        if event.event == "end":
                            return
                        if event.event == "problem":
                            error = ServerUnreachableError(told(event.data))
                            break
                        if event.data:
                            yield parsed_event(path, event.data)
                            last_id = event.id or last_id
                        backoff.reset()
            except (httpx2.TransportError, ServerUnreachableError) as broken:
                error = broken
            if not backoff.wait():
                raise unreachable(self.url, error)

    @contextmanager
    def _connected(self, path: str, params: Mapping[str, Any], last_id: str) -> Iterator[httpx2.EventSource]:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        timeout = httpx2.Timeout(10.0, read=STREAM_SILENCE_S)
        with self._client.sse(path, params=dict(params), headers=headers, timeout=timeout) as source:
            response = source.response
            if response.status_code != 200:
                response.read()
                parsed_answer(response, self.url)
            kind = response.headers.get("content-type", "").partition(";")[0].strip()
            if kind != "text/event-stream":
                raise NotAtollError(
                    f"{self.url}{path} answered with {kind or 'nothing'}: that is not the Atoll API"
                )
            yield source


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parsed_event(path: str, data: str) -> Any:
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise NotAtollError(f"{path} streams something that is no JSON: {error}") from None


def told(data: str) -> str:
    """The sentence of a `problem` event."""
    try:
        document = json.loads(data)
    except json.JSONDecodeError:
        return data
    return str(document.get("detail", data)) if isinstance(document, dict) else data


def unreachable(url: str, error: Exception | None) -> ServerUnreachableError:
    cause = "the connection ended" if error is None else str(error) or type(error).__name__
    return ServerUnreachableError(
        f"no answer from {url}: {cause}. Is `atoll serve` running there? --url says where."
    )


def parsed_answer(response: httpx2.Response, url: str) -> Any:
    """The JSON of a good answer; the problem of a bad one as an exception."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    if kind not in {"application/json", "application/problem+json"}:
        if response.status_code in RETRIED_STATUSES:
            raise ServerUnreachableError(f"no answer from {url}: HTTP status {response.status_code}")
        raise NotAtollError(
            f"{url} answered with {kind or 'nothing'} (HTTP status {response.status_code}): that is not the Atoll API"
        )
    try:
        document = response.json()
    except ValueError as error:
        raise NotAtollError(f"{url} answered with broken JSON: {error}") from None
    if response.is_success:
        return document
    raise problem(response.status_code, document)


def problem(status: int, document: Any) -> Exception:
    """The exception for an error document; a server that says it cannot work now counts as unreachable."""
    fields = document if isinstance(document, dict) else {}
    detail = str(fields.get("detail") or "")
    title = str(fields.get("title") or f"HTTP status {status}")
    if status in RETRIED_STATUSES:
        return ServerUnreachableError(f"the server cannot answer now: {detail or title}")
    listed = fields.get("violations") or []
    violations = tuple(
        FieldViolation(str(v.get("field", "")), v.get("value"), str(v.get("message", "")))
        for v in listed
        if isinstance(v, dict)
    )
    return ProblemError(status=status, title=title, detail=detail, violations=violations)
