"""Reading the settings of a config.json. Pure: no torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from actors.training.interchange.families import COMMON_FIXED, COMMON_IGNORED, Family


class Settings:
    """The settings of one config.json: typed reads, and what is wrong with them, collected."""

    def __init__(self, document: Mapping[str, Any], family: Family) -> None:
        self._document = document
        self.family = family
        self.refusals: list[str] = []
        self._read: set[str] = set()
        self._refused: set[str] = set()

    def has(self, name: str) -> bool:
        return name in self._document

    def value(self, name: str) -> Any:
        """As given, else the family's default."""
        self._read.add(name)
        return self._document.get(name, self.family.default(name))

    def integer(self, name: str, *, least: int = 1) -> int:
        value = self.value(name)
        if type(value) is int and value >= least:
            return value
        self.refuse(name, f"{value!r}; must be an integer of at least {least}")
        return least

    def number(self, name: str) -> float:
        value = self.value(name)
        if type(value) in (int, float) and 0 < value <= sys.float_info.max:
            return float(value)
        self.refuse(name, f"{value!r}; must be a finite number above 0")
        return 1.0

    def boolean(self, name: str) -> bool:
        value = self.value(name)
        if not isinstance(value, bool):
            self.refuse(name, f"{value!r}; must be true or false")
        return bool(value)

    def refuse(self, name: str, why: str) -> None:
        """The first reason against a setting counts."""
        if name not in self._refused:
            self._refused.add(name)
            self.refusals.append(f"{name} is {why}")

    def refuse_the_rest(self) -> None:
        """Settings with a meaning that is not computed here, and those nobody has looked at."""
        for name, allowed in {**COMMON_FIXED, **self.family.fixed}.items():
            value = self.value(name) if self.has(name) else allowed[0]
            if value not in allowed:
                self.refuse(name, f"{value!r}; only {allowed[0]!r} is computed here")
        kinds = self.value("layer_types")
        if kinds is not None and not (isinstance(kinds, list) and all(k == "full_attention" for k in kinds)):
            self.refuse("layer_types", f"{kinds!r}; only full_attention is computed here")
        for name, value in self._document.items():
            # Nothing that is switched off can change what the model computes.
            known = name in self._read or name in COMMON_IGNORED or name in self.family.ignored
            if not known and value not in (None, False, 0, "", [], {}):
                self.refuse(name, f"{value!r}; this setting is not known here")
