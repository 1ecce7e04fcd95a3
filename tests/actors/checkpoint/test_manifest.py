"""The manifest tells whole checkpoints from damaged ones, and says what is wrong."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from pathlib import Path

import pytest

from actors.checkpoint import manifest
from actors.checkpoint.disk import hash_file
from actors.checkpoint.manifest import FileRecord, Manifest, ManifestError

WHOLE = Manifest(
    step=12,
    attempt="1-3",
    world_size=4,
    layout={"tp": 2, "dp": 2},
    extras={"cursor": {"step": 12}},
    created_at=1.5,
    torch_version="2.13.0",
    files={"__0_0.distcp": FileRecord(3, hashlib.sha256(b"abc").hexdigest())},
)


def test_a_manifest_survives_the_round_trip() -> None:
    assert manifest.parse(manifest.build(WHOLE)) == WHOLE


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"\x00\xff\x13garbage", "not JSON"),
        (manifest.build(WHOLE)[:-40], "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"version": 1, "step": 1e999}', "not JSON"),
        (b"[]", "not an object"),
        (b"{}", "version None is unknown"),
        (b'{"version": 7}', "version 7 is unknown, this program reads version 1"),
        (b'{"version": 1, "step": NaN}', "not JSON"),
        (manifest.build(WHOLE).replace(b'"step": 12', b'"step": 13', 1), "digest differs"),
    ],
)
def test_a_damaged_manifest_is_refused_with_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(ManifestError, match=reason):
        manifest.parse(content)


def test_every_flipped_byte_of_a_manifest_is_noticed() -> None:
    content = manifest.build(WHOLE)
    for position in range(len(content) - 1):  # the last byte is the closing newline
        flipped = bytearray(content)
        flipped[position] ^= 0x01
        try:
            assert manifest.parse(bytes(flipped)) == WHOLE, f"byte {position} changed the meaning unnoticed"
        except ManifestError:
            continue


def test_a_file_outside_the_directory_is_refused() -> None:
    body = json.loads(manifest.build(WHOLE))
    del body["digest"]
    body["files"]["../secret"] = body["files"].pop("__0_0.distcp")
    body["digest"] = hashlib.sha256(
        json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()
    with pytest.raises(ManifestError, match=r"'\.\./secret', which is not a plain file name"):
        manifest.parse(json.dumps(body).encode())


def test_extras_must_be_json() -> None:
    with pytest.raises(ManifestError, match="JSON values"):
        manifest.build(Manifest(1, "1", 1, {}, {"bad": object()}, 0.0, "x"))
    with pytest.raises(ManifestError, match="JSON values"):
        manifest.build(Manifest(1, "1", 1, {}, {"loss": float("nan")}, 0.0, "x"))


def test_damage_of_a_file_is_named(tmp_path: Path) -> None:
    name, record = next(iter(WHOLE.files.items()))
    path = tmp_path / name
    assert manifest.check_file(tmp_path, name, record) == f"missing file {name}"
    path.write_bytes(b"ab")
    assert manifest.check_file(tmp_path, name, record) == f"truncated file {name}: 2 of 3 bytes"
    path.write_bytes(b"abcd")
    assert manifest.check_file(tmp_path, name, record) == f"file {name} is too long: 4 instead of 3 bytes"
    path.write_bytes(b"abd")
    assert manifest.check_file(tmp_path, name, record) == f"checksum of {name} differs from the manifest"
    path.write_bytes(b"abc")
    assert manifest.check_file(tmp_path, name, record) is None


def test_hashing_takes_constant_memory(tmp_path: Path) -> None:
    size = 96 << 20
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(size)
    expected = hashlib.sha256()
    for _ in range(96):
        expected.update(bytes(1 << 20))
    tracemalloc.start()
    found = hash_file(path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == (size, expected.hexdigest())
    assert peak_bytes < 1 << 20
