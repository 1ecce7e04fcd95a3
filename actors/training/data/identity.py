"""What the tokens of a job are, in a few characters: a job that is resumed must go on with those it began with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.spec.sections import DataSpec


@dataclass(frozen=True)
class DataIdentity:
    """Equal for equal data, whatever the plan."""

    tokenizer: str
    """As `Tokenizer.identity` has it."""
    content: str
    """sha256 of all tokens, and of where the held-back ones begin."""

    def as_json(self) -> dict[str, str]:
        return asdict(self)

    def require(self, before: Mapping[str, Any], spec: DataSpec) -> None:
        """ValueError when a checkpoint was trained on other tokens, which `before` describes as `as_json` did.

        Equal tokens are enough: another version of a library may write the same tokenizer down otherwise.
        """
        if self.content == before.get("content"):
            return
        field, name = ("data.sources", "the sources") if spec.sources else ("data.source", repr(spec.source))
        what = "content" if self.tokenizer == before.get("tokenizer") else "tokenizer"
        raise ValueError(
            f"{field}: the {what} of {name} is another than when the job's checkpoint was written; a job goes on with "
            "the data it began with alone: submit a new one, or change no data that a job reads"
        )


def digest_tokens(parts: Iterable[npt.NDArray[Any]]) -> str:
    """Of arrays of ids: of their lengths too, so that what lies where is part of it."""
    found = hashlib.sha256()
    for ids in parts:
        found.update(f"{ids.dtype.str} {len(ids)} ".encode())
        found.update(np.ascontiguousarray(ids).data)
    return f"sha256:{found.hexdigest()}"
