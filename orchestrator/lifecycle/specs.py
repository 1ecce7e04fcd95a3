"""Parsed job files of jobs that live. A stored one may be older than the program, so parsing may fail."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from orchestrator.spec.job import JobSpec
from orchestrator.spec.parse import parse_spec
from orchestrator.spec.violations import InvalidSpecError
from orchestrator.store import jobs
from orchestrator.store.engine import Database


class SpecCache:
    """A job's spec never changes, so it is read and parsed once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._parsed: dict[str, JobSpec | InvalidSpecError] = {}

    def of(self, job_id: str) -> JobSpec:
        """InvalidSpecError when it does not parse."""
        found = self._find(job_id)
        if isinstance(found, InvalidSpecError):
            raise found
        return found

    def is_known(self, job_id: str) -> bool:
        """Whether it was read before."""
        with self._lock:
            return job_id in self._parsed

    def is_known_good(self, job_id: str) -> bool:
        """Whether it was read before and parsed."""
        with self._lock:
            return isinstance(self._parsed.get(job_id), JobSpec)

    def _find(self, job_id: str) -> JobSpec | InvalidSpecError:
        with self._lock:
            known = self._parsed.get(job_id)
        if known is not None:
            return known
        with self._database.read() as session:
            document = jobs.spec_of(session, job_id)
        found: JobSpec | InvalidSpecError
        try:
            found = parse_spec(document)
        except InvalidSpecError as error:
            found = error
        with self._lock:
            self._parsed[job_id] = found
        return found

    def keep_only(self, job_ids: Iterable[str]) -> None:
        keep = set(job_ids)
        with self._lock:
            for job_id in [job_id for job_id in self._parsed if job_id not in keep]:
                del self._parsed[job_id]
