"""Document -> JobSpec, or every reason why not, in one pass.

Three layers, all of which always run: the values themselves (`values`), the fields one by one (pydantic, strict: no
text for numbers, no truth values for integers), and the rules between fields (`rules`) on the valid sections.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import ValidationError

from orchestrator.spec import sentences
from orchestrator.spec.document import read_document
from orchestrator.spec.job import JobSpec
from orchestrator.spec.rules import Rule, incompatibilities
from orchestrator.spec.sections import Section
from orchestrator.spec.values import MAX_VALUES, Values, described, shown
from orchestrator.spec.violations import InvalidSpecError, Violation


def parse_spec(document: Any, *, further: Sequence[Rule] = ()) -> JobSpec:
    """The job in `document` (mappings, lists and scalars). Raises InvalidSpecError with every violation.

    `further`: rules of this server beside those of every server.
    """
    if not isinstance(document, dict):
        message = f"a job file is a mapping with at least name and training.steps, not {described(document)}"
        raise InvalidSpecError([Violation("", shown(document), message)])
    values = Values(document)
    if values.too_many:
        message = f"holds more than {MAX_VALUES} values (aliases counted each time); no job file does"
        raise InvalidSpecError([Violation("", None, message)])
    violations = list(values.violations)
    spec: JobSpec | None = None
    try:
        spec = JobSpec.model_validate_json(json.dumps(values.clean), strict=True)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            found = sentences.violation(detail)
            if not values.refused(found.field):
                violations.append(found)
    violations += incompatibilities(_sections(spec, values), further)
    if violations or spec is None:
        raise InvalidSpecError(sorted(violations, key=_position))
    return spec


def read_spec(text: str, *, origin: str, further: Sequence[Rule] = ()) -> JobSpec:
    """The job in `text`, YAML or JSON. `origin` names the file in sentences."""
    return parse_spec(read_document(text, origin=origin), further=further)


def _sections(spec: JobSpec | None, values: Values) -> dict[str, Section]:
    """The sections that are valid by themselves, defaults included."""
    if spec is not None and not values.violations:
        return {name: value for name, value in spec if isinstance(value, Section)}
    dropped = {violation.field.partition(".")[0] for violation in values.violations}
    found: dict[str, Section] = {}
    for name, field in JobSpec.model_fields.items():
        kind = field.annotation
        if name in dropped or not (isinstance(kind, type) and issubclass(kind, Section)):
            continue
        given = _known_keys(kind, values.clean.get(name, {}))
        try:
            found[name] = kind.model_validate_json(json.dumps(given), strict=True)
        except ValidationError:
            continue
    return found


def _known_keys(kind: type[Section], given: Any) -> Any:
    """`given` without keys the section does not know: a misspelt key must not hide what else is wrong."""
    if isinstance(given, list):
        return [_known_keys(kind, entry) for entry in given]
    if not isinstance(given, dict):
        return given
    found, keys = {}, kind.fields_by_key()
    for key, value in given.items():
        field = keys.get(key)
        if field is None:
            continue
        inner = _section_in(field.annotation)
        found[key] = value if inner is None else _known_keys(inner, value)
    return found


def _section_in(annotation: Any) -> type[Section] | None:
    """The section that a field may hold: `Section`, or `Section | None`."""
    kinds = (annotation, *get_args(annotation))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, Section)), None)


_ORDER = {name: position for position, name in enumerate(JobSpec.model_fields)}


def _position(violation: Violation) -> tuple[int, str]:
    """Order of the document: sections as in JobSpec, then by path."""
    head = violation.field.partition(".")[0]
    return (_ORDER.get(head, len(_ORDER) if head else -1), violation.field)
