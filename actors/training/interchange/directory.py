"""Reading slices of the tensors in a directory of safetensors files, without reading the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from actors.training.interchange.failure import DirectoryUnreachableError, InterchangeError

SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
FLOATS = ("F64", "F32", "F16", "BF16")
"""Formats that weights may be stored in."""


class TensorDirectory:
    """One checkpoint: a single file, or an index and its shards. Files are opened when a tensor of theirs is asked for,
    and stay open; close() or `with` ends that."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file_of = self._index()
        self._open: dict[str, Any] = {}

    def __enter__(self) -> TensorDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._open.clear()

    def names(self) -> list[str]:
        return list(self._file_of)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._slice(name).get_shape())

    def stored_as(self, name: str) -> str:
        """Format of the stored values, as safetensors names it: `BF16`."""
        return str(self._slice(name).get_dtype())

    def read(self, name: str, offsets: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """The part of a tensor that begins at `offsets`; nothing else of it is read."""
        part = tuple(slice(start, start + length) for start, length in zip(offsets, lengths, strict=True))
        tensor: Tensor = self._slice(name)[part]
        return tensor

    def _slice(self, name: str) -> Any:
        file = self._file_of[name]
        path = self.path / file
        try:
            if file not in self._open:
                self._open[file] = safe_open(path, framework="pt")
            return self._open[file].get_slice(name)
        except FileNotFoundError:
            raise DirectoryUnreachableError("the checkpoint's file", path) from None
        except OSError as error:
            raise DirectoryUnreachableError("the checkpoint's file", path, error) from None
        except SafetensorError as error:
            raise InterchangeError(f"{path} is damaged", [str(error)]) from None

    def _index(self) -> dict[str, str]:
        """File of each tensor, by its name."""
        index = self.path / INDEX_NAME
        if index.exists():
            return self._read_index(index)
        single = self.path / SINGLE_NAME
        if not single.exists():
            others = sorted(file.name for pattern in ("*.bin", "*.pth") for file in self.path.glob(pattern))
            told = f"; {others[0]} is of a format that is not read: save it as safetensors" if others else ""
            raise InterchangeError(
                f"{self.path} holds no weights", [f"neither {SINGLE_NAME} nor {INDEX_NAME} is there{told}"]
            )
        try:
            with safe_open(single, framework="pt") as file:
                return dict.fromkeys(file.keys(), SINGLE_NAME)
        except OSError as error:
            raise DirectoryUnreachableError("the checkpoint's file", single, error) from None
        except SafetensorError as error:
            raise InterchangeError(f"{single} is damaged", [str(error)]) from None

    def _read_index(self, path: Path) -> dict[str, str]:
        try:
            files = dict(json.loads(path.read_bytes())["weight_map"])
        except OSError as error:
            raise DirectoryUnreachableError("the checkpoint's index", path, error) from None
        except (ValueError, KeyError, TypeError) as error:
            raise InterchangeError(f"{path} is no index of safetensors", [repr(error)]) from None
        strange = [
            str(name) for name in files.values() if not isinstance(name, str) or Path(name).name != name
        ]
        missing = sorted(
            {str(name) for name in files.values() if name not in strange and not (self.path / name).exists()}
        )
        if strange or missing:
            reasons = [f"{name!r} is no plain file name" for name in sorted(set(strange))]
            raise InterchangeError(
                f"{path} names files that cannot be read",
                reasons + [f"{name} is not there" for name in missing],
            )
        return files
