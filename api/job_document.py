"""The job file in a request body: JSON or YAML text to a JobSpec, whatever bytes a client sends."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from api.body import Document, DocumentFormat, read_document
from api.dependencies import get_settings
from api.problems import ProblemError, invalid
from orchestrator.settings import Settings
from orchestrator.spec import InvalidSpecError, JobSpec
from orchestrator.spec.document import read_json
from orchestrator.spec.parse import parse_spec, read_spec
from orchestrator.spec.rules import NO_USER_CODE

_ORIGIN = "the body"


def job_spec(
    document: Annotated[Document, Depends(read_document)],
    settings: Annotated[Settings, Depends(get_settings)],
) -> JobSpec:
    """Dependency: the job in the body. Synchronous, so a large file is parsed in a worker thread."""
    further = () if settings.user_code else (NO_USER_CODE,)
    try:
        if document.format is DocumentFormat.YAML:
            return read_spec(document.text, origin=_ORIGIN, further=further)
        return parse_spec(_json(document.text), further=further)
    except InvalidSpecError as error:
        raise invalid(error.violations, code="invalid-job") from None


JobSpecOf = Annotated[JobSpec, Depends(job_spec)]


def _json(text: str) -> object:
    """A body that announces JSON and is none is refused as unreadable (400), not as a wrong job (422)."""
    try:
        return read_json(text, origin=_ORIGIN)
    except InvalidSpecError as error:
        raise ProblemError(400, "not-json", error.violations[0].message) from None
