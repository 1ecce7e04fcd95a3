"""pydantic's errors as plain sentences: what is wrong and what would be right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from pydantic_core import ErrorDetails

from orchestrator.spec.job import JobSpec
from orchestrator.spec.sections import Section
from orchestrator.spec.values import described, shown
from orchestrator.spec.violations import Violation

_NUMBER_TEXT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def violation(error: ErrorDetails) -> Violation:
    """The violation that says what `error` says."""
    path = tuple(str(part) for part in error["loc"])
    value = error["input"]
    kind = error["type"]
    if kind == "extra_forbidden":
        return Violation(".".join(path), shown(value), _unknown_key(path))
    if kind == "missing":
        if path[-1].isdecimal():
            return Violation(
                ".".join(path[:-1]), None, f"has too few values: number {int(path[-1]) + 1} is missing"
            )
        return Violation(".".join(path), None, _missing(path))
    message = _message(error)
    if kind == "string_pattern_mismatch":
        message = _PATTERNS.get(".".join(path), message)
    return Violation(".".join(path), shown(value), message)


def field_sentence(error: ErrorDetails) -> str:
    """The same for documents other than job files: `nodes.3.leaf: must be text, not 7`."""
    path = ".".join(str(part) for part in error["loc"])
    where = f"{path}: " if path else ""
    if error["type"] == "extra_forbidden":
        return f"{where}is not a known key"
    return f"{where}{'is required' if error['type'] == 'missing' else _message(error)}"


def _message(error: ErrorDetails) -> str:
    sentence = _SENTENCES.get(error["type"])
    if sentence is not None:
        return sentence(error.get("ctx", {}), error["input"])
    return f"{error['msg'][:1].lower()}{error['msg'][1:]}"


def _wanted(what: str) -> Callable[[Mapping[str, Any], Any], str]:
    def sentence(_: Mapping[str, Any], value: Any) -> str:
        hint = ""
        if isinstance(value, str) and "number" in what and _NUMBER_TEXT.fullmatch(value.strip()):
            hint = "; write it without quotes" + (", with a point: 1.0e-3" if "e" in value.lower() else "")
        return f"must be {what}, not {described(value)}{hint}"

    return sentence


def _bound(words: str, key: str) -> Callable[[Mapping[str, Any], Any], str]:
    return lambda context, value: f"must be {words} {context[key]}, not {described(value)}"


def _choice(context: Mapping[str, Any], value: Any) -> str:
    choices = re.findall(r"'([^']*)'", str(context["expected"]))
    nearest = difflib.get_close_matches(str(value), choices, n=1) if isinstance(value, str) else []
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    known = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    return f"must be {known}, not {described(value)}{hint}"


_SENTENCES: Mapping[str, Callable[[Mapping[str, Any], Any], str]] = {
    "int_type": _wanted("a whole number"),
    "int_from_float": _wanted("a whole number"),
    "float_type": _wanted("a number"),
    "bool_type": _wanted("true or false"),
    "string_type": _wanted("text"),
    "model_type": _wanted("a mapping of keys to values"),
    "tuple_type": _wanted("a list"),
    "list_type": _wanted("a list"),
    "dict_type": _wanted("a mapping of keys to values"),
    "greater_than": _bound("more than", "gt"),
    "greater_than_equal": _bound("at least", "ge"),
    "less_than": _bound("less than", "lt"),
    "less_than_equal": _bound("at most", "le"),
    "too_short": lambda context, _: (
        f"must be a list of {context['min_length']}, not of {context['actual_length']}"
    ),
    "too_long": lambda context, _: f"must be a list of {context['max_length']}, not more",
    "string_too_short": lambda context, _: "must not be empty",
    "string_too_long": lambda context, value: (
        f"must have at most {context['max_length']} characters, not {len(value)}"
    ),
    "enum": _choice,
    "literal_error": _choice,
}

_PATTERNS: Mapping[str, str] = {
    "name": "must be lower-case letters, digits and hyphens, beginning and ending with a letter or digit",
    "resources.accelerator": (
        "must be a label value: letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit"
    ),
}


def _missing(path: tuple[str, ...]) -> str:
    if path == ("training",):
        return "is required, with training.steps at least"
    return "is required"


def _unknown_key(path: tuple[str, ...]) -> str:
    """The nearest known key of the same section; else the place elsewhere where the key is known."""
    *parent, key = path
    section = [part for part in parent if not part.isdecimal()]  # places in a list
    siblings = [known[-1] for known in _known_paths(JobSpec) if list(known[:-1]) == section]
    near = difflib.get_close_matches(key.lower().replace("-", "_"), siblings, n=1, cutoff=0.6)
    if near:
        return f"is not a known key; did you mean {'.'.join([*parent, near[0]])}?"
    elsewhere = [".".join(known) for known in _known_paths(JobSpec) if known[-1] == key]
    if elsewhere:
        return f"is not a known key here; did you mean {' or '.join(elsewhere)}?"
    where = ".".join(parent) or "a job file"
    return f"is not a known key; {where} knows {', '.join(siblings)}"


def _known_paths(model: type[Section], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in model.fields_by_key().items():
        yield (*prefix, name)
        for inner in _models_in(field.annotation):
            yield from _known_paths(inner, (*prefix, name))


def _models_in(annotation: Any) -> Iterator[type[Section]]:
    """The sections that a field may hold, alone, in a list or instead of null."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
