"""Prepared tokens: a directory that is memory-mapped, never read whole.

    meta.json       what it is: `TokenMeta`
    tokens.bin      token ids, uint16 or uint32, little-endian, documents end to end, each with its end token
    documents.bin   int64: where each document begins in tokens.bin, and the end of the last
    hashes.bin      uint64: `document_hash` of each document, for splits by hash
    tokenizer.json  unless the tokenizer is `bytes`

The directory appears whole, by a rename, and is never changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError, model_validator

from actors.training.data.files import SourceError

META, TOKENS, DOCUMENTS, HASHES, TOKENIZER = (
    "meta.json",
    "tokens.bin",
    "documents.bin",
    "hashes.bin",
    "tokenizer.json",
)
SMALL_VOCABULARY = 1 << 16
"""Up to so many ids fit 16 bits."""


class TokenMeta(BaseModel):
    """What meta.json holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["atoll-tokens-1"] = "atoll-tokens-1"
    tokenizer: str
    """Identity: `bytes`, or the sha256 of the tokenizer's JSON."""
    vocab_size: PositiveInt
    end_of_document: NonNegativeInt
    dtype: Literal["uint16", "uint32"]
    tokens: NonNegativeInt
    documents: NonNegativeInt
    sha256: dict[str, str]
    """Of the other files."""
    skipped_lines: int
    empty_documents: int
    empty_files: int
    sources: tuple[str, ...]
    plan: str
    """sha256 of what was prepared and how: equal for a repetition."""

    @model_validator(mode="after")
    def _the_end_is_a_token(self) -> Self:
        if self.end_of_document >= self.vocab_size:
            raise ValueError(f"end_of_document {self.end_of_document} is no id below {self.vocab_size}")
        return self


@dataclass(frozen=True)
class TokenFile:
    """An opened directory. The maps stay good when the files are deleted, until the process ends."""

    directory: Path
    meta: TokenMeta
    tokens: npt.NDArray[Any]
    documents: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]


def dtype_for(vocab_size: int) -> Literal["uint16", "uint32"]:
    return "uint16" if vocab_size <= SMALL_VOCABULARY else "uint32"


def open_token_file(path: str, *, field: str) -> TokenFile:
    """Maps the directory at `path`. SourceError names the file that is missing, or does not fit the others."""
    directory = Path(path.removeprefix("file://"))
    meta = read_meta(directory, field=field)
    kinds = {TOKENS: meta.dtype, DOCUMENTS: "int64", HASHES: "uint64"}
    counts = {TOKENS: meta.tokens, DOCUMENTS: meta.documents + 1, HASHES: meta.documents}
    maps = {name: _mapped(directory / name, kinds[name], counts[name], field) for name in kinds}
    documents = maps[DOCUMENTS]
    if documents[0] != 0 or documents[-1] != meta.tokens:
        raise SourceError(f"{field}: {str(directory / DOCUMENTS)!r} is damaged; {_AGAIN}")
    return TokenFile(directory, meta, maps[TOKENS], documents, maps[HASHES])


def read_meta(directory: Path, *, field: str) -> TokenMeta:
    path = directory / META
    try:
        return TokenMeta.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise SourceError(
            f"{field}: no file {str(path)!r} on this node; give the directory that `atoll data prepare` wrote, "
            "on storage that every node sees"
        ) from None
    except OSError as error:
        raise SourceError(f"{field}: {str(path)!r} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "it"
        raise SourceError(
            f"{field}: {str(path)!r} is no description of prepared tokens ({where}: {first['msg']}); {_AGAIN}"
        ) from None


_AGAIN = "prepare the tokens again into another directory"


def _mapped(path: Path, kind: str, count: int, field: str) -> npt.NDArray[Any]:
    dtype = np.dtype(kind).newbyteorder("<")
    try:
        size = path.stat().st_size
        if size != count * dtype.itemsize:
            raise SourceError(
                f"{field}: {str(path)!r} has {size} bytes, must have {count * dtype.itemsize}: it is damaged; {_AGAIN}"
            )
        if count == 0:
            return np.empty(0, dtype)
        return np.memmap(path, dtype=dtype, mode="r", shape=(count,))
    except FileNotFoundError:
        raise SourceError(
            f"{field}: no file {str(path)!r} on this node, which meta.json names; {_AGAIN}"
        ) from None
    except OSError as error:
        raise SourceError(f"{field}: {str(path)!r} cannot be mapped: {error.strerror}") from None
