"""Text -> plain values: YAML as people mean it, or JSON.

The YAML read here is the core schema of YAML 1.2: `1e-3` is a number, `no` and `on` are text, dates are text. Keys that
occur twice, several documents in one file, tags and merge keys are refused instead of silently resolved.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar, NoReturn

import yaml

from orchestrator.spec.values import shown
from orchestrator.spec.violations import InvalidSpecError, Violation

MAX_CHARACTERS = 1 << 18
"""A job file has a few hundred lines; 256 Ki characters are far more than any."""

MAX_FLOW_DEPTH = 64
"""Brackets open at once in YAML; its reader's work for each token grows with them."""

MAX_TOKENS = 1 << 15
"""YAML tokens of a job file: about six for each value it may hold. Pure Python reads some 10,000 a second."""


def read_document(text: str, *, origin: str, max_characters: int = MAX_CHARACTERS) -> Any:
    """The values in `text`; `origin` names the file in sentences. Raises InvalidSpecError with line and column.

    The tokens allowed grow with `max_characters`: a file that may be longer than a job file may hold more.
    """
    if len(text) > max_characters:
        _refuse(origin, f"{len(text)} characters are too many, at most {max_characters}")
    max_tokens = max(MAX_TOKENS, max_characters // 2) if max_characters > MAX_CHARACTERS else MAX_TOKENS
    try:
        if text.lstrip("\ufeff \t\r\n").startswith("{"):
            return _read_json_or_yaml(text.lstrip("\ufeff"), origin, max_tokens)
        return _read_yaml(text, origin, max_tokens)
    except RecursionError:
        _refuse(origin, "nested too deeply")


def read_json(text: str, *, origin: str) -> Any:
    """The values in strict JSON (RFC 8259: no NaN, no key twice). Raises InvalidSpecError, for YAML too."""
    try:
        return _read_json(text, origin)
    except json.JSONDecodeError as error:
        _refuse_json(error, origin)
    except RecursionError:
        _refuse(origin, "nested too deeply")


def _read_json_or_yaml(text: str, origin: str, max_tokens: int) -> Any:
    """A text that begins with a brace: JSON, or a YAML flow mapping."""
    try:
        return _read_json(text, origin)
    except json.JSONDecodeError as error:
        try:
            return _read_yaml(text, origin, max_tokens)
        except InvalidSpecError:
            _refuse_json(error, origin)


def _read_json(text: str, origin: str) -> Any:
    """JSONDecodeError for what is no JSON, InvalidSpecError for what Python's reader would take nonetheless."""
    try:
        return json.loads(text, object_pairs_hook=_without_twins, parse_constant=_no_constant)
    except json.JSONDecodeError:
        raise
    except (_TwinKeyError, _ConstantError) as error:
        _refuse(origin, str(error))
    except ValueError:  # Python refuses to convert integers of more than 4,300 digits
        _refuse(origin, "holds an integer of thousands of digits")


def _refuse_json(error: json.JSONDecodeError, origin: str) -> NoReturn:
    _refuse(origin, f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}")


def _read_yaml(text: str, origin: str, max_tokens: int) -> Any:
    loader = None
    try:
        loader = _Loader(text, max_tokens)
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        if error.context == "expected a single document in the stream":
            _refuse(origin, f"{at}a second document begins here; one file holds one")
        _refuse(origin, f"{at}not valid YAML: {error.problem or error.context}")
    except yaml.reader.ReaderError as error:
        _refuse(
            origin, f"character {error.position + 1}: U+{int(error.character):04X} is not allowed in YAML"
        )
    except _TooLongError as error:
        _refuse(origin, str(error))
    except ValueError:  # Python refuses to convert integers of more than 4,300 digits
        _refuse(origin, "holds an integer of thousands of digits")
    finally:
        if loader is not None:
            loader.dispose()


def _refuse(origin: str, problem: str) -> NoReturn:
    raise InvalidSpecError([Violation("", None, f"{origin}: {problem}")]) from None


class _TwinKeyError(ValueError):
    def __init__(self, key: str) -> None:
        super().__init__(f"the key {shown(key)!r} occurs twice in one mapping; keep one")


class _TooLongError(ValueError):
    """More YAML tokens than are worth reading."""


class _ConstantError(ValueError):
    """NaN or an infinity, which Python's reader takes and JSON does not have."""


def _no_constant(name: str) -> NoReturn:
    raise _ConstantError(f"{name} is no number; JSON has finite ones only")


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _TwinKeyError(key)
        found[key] = value
    return found


class _Loader(yaml.SafeLoader):
    """YAML 1.2 core schema without tags of its own."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - declared so by yaml
    yaml_constructors: ClassVar[dict[str | None, Any]] = {}

    def __init__(self, text: str, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        super().__init__(text)

    def fetch_more_tokens(self) -> None:
        """Called by yaml's scanner for each token: ends what would only be refused after many seconds of reading."""
        if self.flow_level > MAX_FLOW_DEPTH:
            raise RecursionError
        if self.tokens_taken + len(self.tokens) > self._max_tokens:
            raise _TooLongError(f"holds more than {self._max_tokens} YAML tokens")
        super().fetch_more_tokens()


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:null":
            raise yaml.constructor.ConstructorError(
                None, None, "a key must be plain text", key_node.start_mark
            )
        if key_node.value in found:
            raise yaml.constructor.ConstructorError(
                None, None, str(_TwinKeyError(key_node.value)), key_node.start_mark
            )
        found[key_node.value] = loader.construct_object(value_node, deep=True)
    return found


def _sequence(loader: _Loader, node: yaml.SequenceNode) -> list[Any]:
    return [loader.construct_object(item, deep=True) for item in node.value]


def _scalar(loader: _Loader, node: yaml.ScalarNode) -> Any:
    kind = node.tag.rpartition(":")[2]
    text = node.value
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if kind == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _no_tag(loader: _Loader, node: yaml.Node) -> NoReturn:
    raise yaml.constructor.ConstructorError(
        None, None, f"tags such as {node.tag} are not used here", node.start_mark
    )


for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"^(?:{_pattern})$"), _first)
for _kind in ("null", "bool", "int", "float", "str"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _scalar)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:seq", _sequence)
_Loader.add_constructor(None, _no_tag)
