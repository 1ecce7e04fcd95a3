"""One rank's state as one piece of memory, in a file of `actors.vault.memory`:

tensors, each on a multiple of 64 bytes | header, JSON | length of the header, 8 bytes, little endian
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor

from actors.vault.memory import mapped

ALIGNMENT = 64
LENGTH_BYTES = 8


class UnpackError(ValueError):
    """A packed state does not belong to this rank, or is damaged."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A state that was unpacked into nothing yet: its tensors lie in the mapped file."""

    tensors: Mapping[str, Mapping[str, torch.Tensor]]
    """By part of the state (`model`, `optimizer`) and name."""
    rng: bytes
    extras: Mapping[str, Any]


def leaves(state: Mapping[str, Stateful]) -> dict[str, dict[str, torch.Tensor]]:
    """This rank's tensors, by part and name. TypeError for anything that is none."""
    found: dict[str, dict[str, torch.Tensor]] = {}
    for part, stateful in state.items():
        found[part] = {}
        for name, value in stateful.state_dict().items():
            if not isinstance(value, torch.Tensor):
                raise TypeError(
                    f"{part}.{name} is a {type(value).__name__}; only tensors can be kept in memory"
                )
            found[part][name] = value.to_local() if isinstance(value, DTensor) else value
    return found


def describe(
    tensors: Mapping[str, Mapping[str, torch.Tensor]], *, rng: bytes, extras: Mapping[str, Any]
) -> bytes:
    """The header of a packed state. TypeError, ValueError when `extras` are no JSON values."""
    described, offset = [], 0
    for part, named in tensors.items():
        for name, tensor in named.items():
            kind = str(tensor.dtype).removeprefix("torch.")
            described.append([part, name, kind, list(tensor.shape), offset])
            offset += _padded(tensor)
    told = {"tensors": described, "rng": base64.b64encode(rng).decode(), "extras": dict(extras)}
    return json.dumps(told, separators=(",", ":")).encode()


def packed_bytes(tensors: Mapping[str, Mapping[str, torch.Tensor]], header: bytes) -> int:
    """Size of the packed state."""
    return _payload_bytes(tensors) + len(header) + LENGTH_BYTES


def pack(tensors: Mapping[str, Mapping[str, torch.Tensor]], header: bytes, file: int) -> None:
    """Copies the state into `file`, which is at least as large, and cuts it to its size."""
    offset, used = _payload_bytes(tensors), packed_bytes(tensors, header)
    with mapped(file, writable=True) as view:
        _copy_in(tensors, view)
        view[offset : offset + len(header)] = header
        view[offset + len(header) : used] = len(header).to_bytes(LENGTH_BYTES, "little")
    os.ftruncate(file, used)


def _copy_in(tensors: Mapping[str, Mapping[str, torch.Tensor]], view: mmap.mmap) -> None:
    memory, offset = torch.frombuffer(view, dtype=torch.uint8), 0
    for named in tensors.values():
        for tensor in named.values():
            size = tensor.numel() * tensor.element_size()
            if size:
                target = memory[offset : offset + size].view(tensor.dtype).view(tensor.shape)
                target.copy_(tensor.detach())
            offset += _padded(tensor)


@contextlib.contextmanager
def unpacked(file: int) -> Iterator[Packed]:
    """What `pack` wrote; the tensors are valid inside the context. UnpackError when it is no such file."""
    size = os.fstat(file).st_size
    if size < LENGTH_BYTES:
        raise UnpackError(f"a snapshot of {size} bytes")
    # A private mapping may be written to as far as torch is concerned, and changes nothing.
    view = mmap.mmap(file, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    try:
        length = int.from_bytes(view[size - LENGTH_BYTES :], "little")
        try:
            header = json.loads(view[max(0, size - LENGTH_BYTES - length) : size - LENGTH_BYTES])
            rng, extras = base64.b64decode(header["rng"]), header["extras"]
            tensors = _views(view, header["tensors"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnpackError(f"its header cannot be read: {type(error).__name__}: {error}") from error
        yield Packed(tensors, rng, extras)
    finally:
        tensors = {}
        with contextlib.suppress(BufferError):  # a tensor that somebody kept: freed with it
            view.close()


def _views(view: mmap.mmap, described: list[Any]) -> dict[str, dict[str, torch.Tensor]]:
    memory = torch.frombuffer(view, dtype=torch.uint8)
    found: dict[str, dict[str, torch.Tensor]] = {}
    for part, name, kind, shape, offset in described:
        dtype = getattr(torch, kind)
        size = math.prod(shape) * dtype.itemsize
        if not 0 <= offset <= len(memory) - size:
            raise ValueError(f"{part}.{name} would end outside of the file")
        empty = torch.empty(shape, dtype=dtype)
        found.setdefault(part, {})[name] = (
            memory[offset : offset + size].view(dtype).view(shape) if size else empty
        )
    return found


def require_same(held: Packed, wanted: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
    """UnpackError unless `held` has just the tensors of `wanted`: names, types and shapes."""
    if held.tensors.keys() != wanted.keys():
        raise UnpackError(f"it holds {sorted(held.tensors)}, this rank's state is {sorted(wanted)}")
    for part, named in wanted.items():
        there = held.tensors[part]
        if strange := sorted(there.keys() ^ named.keys()):
            raise UnpackError(f"it and this rank's {part} differ in {strange[0]}")
        for name, tensor in named.items():
            other = there[name]
            if (other.dtype, other.shape) != (tensor.dtype, tensor.shape):
                raise UnpackError(
                    f"{part}.{name} is {other.dtype} {list(other.shape)} in it, and "
                    f"{tensor.dtype} {list(tensor.shape)} here"
                )


def _padded(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT


def _payload_bytes(tensors: Mapping[str, Mapping[str, torch.Tensor]]) -> int:
    """Bytes of the tensors with the gaps between them."""
    return sum(_padded(tensor) for part in tensors.values() for tensor in part.values())
