"""Logs of living ranks, asked from the controller over its private endpoint: this process is no Ray driver."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from types import TracebackType

import httpx2
from pydantic import SecretStr

from api.problems import ProblemError
from orchestrator.lifecycle.ports import GangRef, LogChunk
from orchestrator.recovery.timeouts import CONTROL_CALL_S
from orchestrator.store import leases
from orchestrator.store.engine import Database

TIMEOUT_S = CONTROL_CALL_S + 5.0
"""Longer than the controller waits for the cluster, so that it says itself who gives no answer."""


class LiveLogs:
    """HTTP client of the controller that holds the lease."""

    def __init__(self, database: Database, token: SecretStr | None) -> None:
        self._database = database
        self._token = token
        self._client = httpx2.Client(timeout=TIMEOUT_S, trust_env=False)

    def read(
        self, gang: GangRef, *, rank: int, attempt: int | None, offset: int, limit: int, now: datetime
    ) -> LogChunk | None:
        """Part of a living rank's log; None when no such gang lives. 503 when no controller can be asked."""
        with self._database.read() as session:
            lease = leases.current(session)
        if lease is None or not lease.is_held(now) or lease.endpoint is None:
            raise unavailable("no controller is running")
        query: dict[str, str | int] = {
            "incarnation": gang.incarnation,
            "rank": rank,
            "offset": offset,
            "limit": limit,
        }
        if attempt is not None:
            query["attempt"] = attempt
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token.get_secret_value()}"}
        try:
            answer = self._client.get(
                f"{lease.endpoint}/internal/v1/logs/{gang.job_id}", params=query, headers=headers
            )
        except httpx2.HTTPError:
            raise unavailable("the controller does not answer") from None
        if answer.status_code == 404:
            return None
        if answer.status_code in (401, 403):
            raise unavailable(
                "the controller refuses this server's internal token (ATOLL_INTERNAL_TOKEN differs)"
            )
        if answer.status_code != 200:
            raise unavailable(f"the controller answered {answer.status_code}")
        return _chunk(answer)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> LiveLogs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _chunk(answer: httpx2.Response) -> LogChunk:
    try:
        body = answer.json()
        return LogChunk(
            attempt=int(body["attempt"]),
            rank=int(body["rank"]),
            offset=int(body["offset"]),
            data=base64.b64decode(body["data_base64"], validate=True),
            size=int(body["size"]),
        )
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise unavailable("the controller's answer cannot be read") from None


def unavailable(why: str) -> ProblemError:
    return ProblemError(
        503,
        "live-logs-unavailable",
        f"Logs of running ranks come from the controller, and {why}. The job goes on; logs of ended attempts are kept.",
        headers={"Retry-After": "2"},
    )
