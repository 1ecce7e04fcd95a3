"""The server's policy of the queue, from a YAML file. Without one every project is equal and has no quota.

starvation_s: 86400        # a job that has waited this long goes first, and nothing passes it by
half_life_s: 86400         # what a project used counts half after this long
reservations: 1            # jobs at the head of the queue that accelerators are kept for
preemption: true
default: {weight: 1}       # projects that are not named below
projects:
  vision: {weight: 2, quota: 64}   # quota: accelerators held at once, at most
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.spec.document import MAX_CHARACTERS, read_document
from orchestrator.spec.sections import ProjectName
from orchestrator.spec.sentences import field_sentence
from orchestrator.spec.values import Values
from orchestrator.spec.violations import InvalidSpecError


class InvalidPolicyError(ValueError):
    """A policy file that cannot be taken; `problems` and the message have every violation."""

    def __init__(self, origin: str, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(f"{origin}: " + "; ".join(problems))


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class ProjectPolicy(_Part):
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Share of the cluster beside the weights of the other projects."""
    quota: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    """Accelerators that its jobs may hold at once; null: no limit."""


class QueuePolicy(_Part):
    starvation_s: Annotated[float, Field(gt=0, le=1e9)] = 86_400.0
    """A job that has waited this long goes before all that have not, oldest first; accelerators are kept for it, and
    it is not preempted any more."""
    half_life_s: Annotated[float, Field(gt=0, le=1e9)] = 86_400.0
    """What a project has used counts half after this long."""
    reservations: Annotated[int, Field(ge=0, le=1000)] = 1
    """Jobs at the head of the queue that accelerators are kept for."""
    preemption: bool = True
    """Whether jobs of higher priority may take the place of preemptible ones of lower priority."""
    default: ProjectPolicy = ProjectPolicy()
    """Of projects that are not named."""
    projects: dict[ProjectName, ProjectPolicy] = {}

    def project(self, name: str) -> ProjectPolicy:
        return self.projects.get(name, self.default)


def read_policy_file(path: Path) -> QueuePolicy:
    """The policy in a file. InvalidPolicyError, also for a file that cannot be read."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)  # one more than is taken
    except OSError as error:
        raise InvalidPolicyError(str(path), [f"cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError:
        raise InvalidPolicyError(str(path), ["is no UTF-8 text"]) from None
    return policy_from_yaml(text, origin=str(path))


def policy_from_yaml(text: str, *, origin: str) -> QueuePolicy:
    """The policy in `text`; `origin` names the file in sentences. InvalidPolicyError lists every violation."""
    try:
        document = read_document(text, origin=origin)
    except InvalidSpecError as error:
        problem = error.violations[0].message.removeprefix(f"{origin}: ")
        raise InvalidPolicyError(origin, [problem]) from None
    if not isinstance(document, dict):
        keys = ", ".join(QueuePolicy.model_fields)
        raise InvalidPolicyError(origin, [f"a queue policy is a mapping with any of the keys {keys}"])
    values = Values(document)
    if values.too_many or values.violations:
        problems = [f"{violation.field}: {violation.message}" for violation in values.violations]
        raise InvalidPolicyError(origin, problems or ["holds too many values for a queue policy"])
    try:
        return QueuePolicy.model_validate_json(json.dumps(values.clean))
    except ValidationError as error:
        raise InvalidPolicyError(origin, [field_sentence(detail) for detail in error.errors()]) from None
