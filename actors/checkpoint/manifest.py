"""The manifest of a checkpoint: which files it has, how large they are and what they hash to. Pure but for
`check_file`.

DCP stores no checksums: flipped bytes load silently, and new shards under old metadata load as valid. So a
checkpoint counts as good only when a manifest that is whole itself describes every file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from actors.checkpoint.disk import hash_file

VERSION: Final = 1


class ManifestError(ValueError):
    """The manifest cannot be trusted; the message says why, for people."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    step: int
    """Finished optimizer steps."""
    attempt: str
    world_size: int
    layout: Mapping[str, Any]
    """The plan (axes and degrees) the ranks had; per-rank RNG belongs to it."""
    extras: Mapping[str, Any]
    """What the training loop stored besides tensors: data cursor and the like. JSON values."""
    created_at: float
    """UTC seconds since 1970."""
    torch_version: str
    files: Mapping[str, FileRecord] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        """Bytes of all files it lists."""
        return sum(record.bytes for record in self.files.values())


def _digest(body: Mapping[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def build(manifest: Manifest) -> bytes:
    """The manifest as JSON with its own digest. ManifestError when layout or extras are not JSON values."""
    body: dict[str, Any] = {
        "version": VERSION,
        "step": manifest.step,
        "attempt": manifest.attempt,
        "world_size": manifest.world_size,
        "layout": dict(manifest.layout),
        "extras": dict(manifest.extras),
        "created_at": manifest.created_at,
        "torch_version": manifest.torch_version,
        "files": {
            name: {"bytes": record.bytes, "sha256": record.sha256}
            for name, record in sorted(manifest.files.items())
        },
    }
    try:
        body["digest"] = _digest(body)
        return (json.dumps(body, indent=1, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise ManifestError(f"layout and extras must be JSON values: {error}") from error


def parse(content: bytes) -> Manifest:
    """Reads a manifest. ManifestError names the first thing that is wrong with it."""
    try:
        body = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"manifest is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ManifestError(f"manifest is a JSON {type(body).__name__}, not an object")
    version = body.get("version")
    if version != VERSION:
        raise ManifestError(f"manifest version {version!r} is unknown, this program reads version {VERSION}")
    claimed = body.pop("digest", None)
    try:
        holds = claimed == _digest(body)
    except ValueError as error:  # 1e999 is read as infinity
        raise ManifestError(f"manifest is not JSON: {error}") from error
    if not holds:
        raise ManifestError("manifest digest differs from its content")
    try:
        files = {
            name: FileRecord(bytes=int(record["bytes"]), sha256=str(record["sha256"]))
            for name, record in body["files"].items()
        }
        manifest = Manifest(
            step=int(body["step"]),
            attempt=str(body["attempt"]),
            world_size=int(body["world_size"]),
            layout=dict(body["layout"]),
            extras=dict(body["extras"]),
            created_at=float(body["created_at"]),
            torch_version=str(body["torch_version"]),
            files=files,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ManifestError(f"manifest lacks a field or has a wrong one: {error!r}") from error
    for name in files:
        if name != Path(name).name or name in {"", ".", ".."}:
            raise ManifestError(f"manifest lists {name!r}, which is not a plain file name")
    return manifest


def read(directory: Path, manifest_name: str) -> Manifest:
    """The manifest of a checkpoint directory. ManifestError also when the file is missing or unreadable."""
    try:
        return parse((directory / manifest_name).read_bytes())
    except FileNotFoundError:
        raise ManifestError("manifest is missing") from None
    except OSError as error:
        raise ManifestError(f"manifest cannot be read: {error}") from error


def check_file(directory: Path, name: str, record: FileRecord) -> str | None:
    """The reason why a listed file is damaged, None when it is whole. The cheap check (size) comes first."""
    path = directory / name
    try:
        size = path.stat().st_size
        if size < record.bytes:
            return f"truncated file {name}: {size} of {record.bytes} bytes"
        if size > record.bytes:
            return f"file {name} is too long: {size} instead of {record.bytes} bytes"
        if hash_file(path)[1] != record.sha256:
            return f"checksum of {name} differs from the manifest"
    except FileNotFoundError:
        return f"missing file {name}"
    except OSError as error:
        return f"file {name} cannot be read: {error}"
    return None
