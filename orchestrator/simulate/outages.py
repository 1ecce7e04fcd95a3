"""What-if faults, written by a person: which part of the fabric goes down, when, and for how long.

A YAML list:

    - {down: leaf=l3, at_s: 600, for_s: 7200}    # seconds since the simulation begins
    - {down: node=n7}                            # at once, and for good
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.simulate.faults import NodeChange, nodes_of
from orchestrator.simulate.jobs import LONGEST_S
from orchestrator.simulate.philly import InvalidTraceError
from orchestrator.spec.document import read_document
from orchestrator.spec.sentences import field_sentence
from orchestrator.spec.violations import InvalidSpecError
from orchestrator.topology.fabric import Fabric


class Outage(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    down: str
    """A part of the fabric, `TIER=NAME`."""
    at_s: Annotated[float, Field(ge=0, le=LONGEST_S)] = 0.0
    for_s: Annotated[float, Field(gt=0, le=LONGEST_S)] | None = None
    """None: it does not come back."""


def read_outages(text: str, fabric: Fabric, *, origin: str) -> list[NodeChange]:
    """Changes in the order of time; a node is down while any outage of it lasts. InvalidTraceError names every wrong
    entry."""
    document = _list_in(text, origin)
    problems: list[str] = []
    spans: dict[str, list[tuple[float, float | None]]] = {}
    for number, entry in enumerate(document, start=1):
        try:
            outage = Outage.model_validate(entry)
            nodes = nodes_of(fabric, outage.down)
        except ValidationError as error:
            problems += [f"entry {number}: {field_sentence(detail)}" for detail in error.errors()]
            continue
        except ValueError as error:
            problems.append(f"entry {number}: down: {error}")
            continue
        until_s = None if outage.for_s is None else outage.at_s + outage.for_s
        for node in nodes:
            spans.setdefault(node, []).append((outage.at_s, until_s))
    if problems:
        raise InvalidTraceError(f"{origin}: " + "; ".join(problems))
    return sorted(change for node, lasting in spans.items() for change in _changes(node, lasting))


def _list_in(text: str, origin: str) -> list[Any]:
    try:
        document = read_document(text, origin=origin)
    except InvalidSpecError as error:
        raise InvalidTraceError(error.violations[0].message) from None
    if not isinstance(document, list):
        known = "a list of outages ({down: leaf=l3, at_s: 600}) or a fault trace with event_type"
        raise InvalidTraceError(f"{origin} has no faults: expected {known}")
    return document


def _changes(node: str, spans: list[tuple[float, float | None]]) -> list[NodeChange]:
    """Spans that touch are one; `None` lasts for ever."""
    found: list[NodeChange] = []
    end_s: float | None = -1.0
    for from_s, until_s in sorted(spans, key=lambda span: span[0]):
        if end_s is None:
            break
        if from_s > end_s:
            if found:
                found.append(NodeChange(end_s, node, alive=True))
            found.append(NodeChange(from_s, node, alive=False))
            end_s = until_s
        elif until_s is None or until_s > end_s:
            end_s = until_s
    if found and end_s is not None:
        found.append(NodeChange(end_s, node, alive=True))
    return found
