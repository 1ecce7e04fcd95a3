"""Files of a source: local paths, and URLs through fsspec (`file://`, `s3://`, `http://`, `https://`)."""

from __future__ import annotations

import fnmatch
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import fsspec

from orchestrator.spec.sections import SourceFormat

READ_AHEAD_BYTES = 4 << 20
STALL_S = 60.0
"""A server that sends nothing for so long is given up."""


_URL = re.compile(r"""(?P<quote>['"])\w+://.*?(?P=quote)|\w+://\S+""")


class SourceError(ValueError):
    """A source that cannot be read: the message names the field, the file and what would be right; URLs in it lose
    what may be secret."""

    def __init__(self, message: str) -> None:
        super().__init__(_URL.sub(_shown, message))


def without_secrets(url: str) -> str:
    """A URL without user, password and query, where keys may stand; a path as it is."""
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _shown(found: re.Match[str]) -> str:
    quote = found["quote"] or ""
    return f"{quote}{without_secrets(found[0].strip(quote) if quote else found[0])}{quote}"


@dataclass(frozen=True)
class SourceFile:
    path: str
    """Absolute path, or URL."""
    size: int | None
    """Bytes; None when a server does not say."""
    ranges: bool
    """Can be read from the middle."""


def find_files(path: str, *, field: str) -> list[SourceFile]:
    """The files that `path` names, in the order of their names. SourceError when there is none."""
    if "://" in path and not path.startswith("file://"):
        return _remote_files(path, field)
    local = Path(path.removeprefix("file://"))
    found = (
        sorted(p for p in _listed(local.parent, field) if fnmatch.fnmatchcase(p.name, local.name))
        if "*" in local.name
        else [local]
    )
    if not found:
        raise SourceError(
            f"{field}: no file matches {path!r} on this node; give the path of files that exist"
        )
    return [_local_file(one, field) for one in found]


def format_of(path: str, declared: SourceFormat) -> SourceFormat:
    """What `path` holds: as declared, or by its name."""
    if declared is not SourceFormat.AUTO:
        return declared
    if path.endswith((".jsonl", ".ndjson")):
        return SourceFormat.JSONL
    if path.endswith((".parquet", ".pq")):
        return SourceFormat.PARQUET
    is_remote = "://" in path and not path.startswith("file://")
    if not is_remote and (Path(path.removeprefix("file://")) / "meta.json").exists():
        return SourceFormat.TOKENS
    return SourceFormat.TEXT


@contextmanager
def open_file(file: SourceFile, *, start: int = 0, field: str) -> Iterator[IO[bytes]]:
    """The bytes of `file` from `start` on."""
    try:
        with _opened(file) as stream:
            if start:
                stream.seek(start)
            yield stream
    except (SourceError, UnicodeError):
        raise
    except (OSError, ImportError) as error:
        raise SourceError(f"{field}: {file.path!r} cannot be read: {_reason(error)}") from None
    except Exception as error:
        # Clients of remote stores have errors of their own, with no base in common.
        if "://" not in file.path or type(error).__module__.startswith("pyarrow"):
            raise
        raise SourceError(f"{field}: {file.path!r} cannot be read: {_reason(error)}") from None


@contextmanager
def _opened(file: SourceFile) -> Iterator[IO[bytes]]:
    if "://" not in file.path:
        with Path(file.path).open("rb", buffering=READ_AHEAD_BYTES) as stream:
            yield stream
        return
    filesystem, bare = _filesystem(file.path)
    # Block size 0 streams: the server need not know ranges.
    with filesystem.open(bare, "rb", block_size=READ_AHEAD_BYTES if file.ranges else 0) as remote:
        yield io.BufferedReader(_Unread(remote), READ_AHEAD_BYTES)


def _local_file(path: Path, field: str) -> SourceFile:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise SourceError(
            f"{field}: no file {str(path)!r} on this node; give a path that every node sees"
        ) from None
    except OSError as error:
        raise SourceError(f"{field}: {str(path)!r} cannot be read: {_reason(error)}") from None
    if path.is_dir():
        raise SourceError(
            f"{field}: {str(path)!r} is a directory without the meta.json of prepared tokens; name files in it, "
            f"as in {str(path / '*.jsonl')!r}, or what `atoll data prepare` wrote"
        )
    return SourceFile(str(path), size, ranges=True)


def _listed(folder: Path, field: str) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if entry.is_file()]
    except OSError as error:
        raise SourceError(f"{field}: {str(folder)!r} cannot be listed: {_reason(error)}") from None


def _remote_files(path: str, field: str) -> list[SourceFile]:
    scheme = path.partition("://")[0]
    try:
        filesystem, bare = _filesystem(path)
        names = sorted(filesystem.glob(bare)) if "*" in bare else [bare]
        found = []
        for name in names:
            info = filesystem.info(name)
            if info.get("type") == "directory":
                if "*" in bare:
                    continue
                if not bare.strip("/"):
                    raise SourceError(_nothing_at(path, field))
                example = f"{path.rstrip('/')}/*.jsonl"
                raise SourceError(f"{field}: {path!r} is a directory; name files in it, as in {example!r}")
            url = name if "://" in name else f"{scheme}://{name}"
            size = info.get("size")
            ranges = size is not None and (scheme == "s3" or _knows_ranges(filesystem, name, size))
            found.append(SourceFile(url, size, ranges))
    except SourceError:
        raise
    except ImportError as error:
        raise SourceError(
            f"{field}: {path!r} needs a package that is not installed: {_reason(error)}"
        ) from None
    except FileNotFoundError as error:
        cause = error.__cause__
        if (cause is not None and getattr(cause, "status", 404) != 404) or isinstance(cause, OSError):
            raise SourceError(f"{field}: {path!r} cannot be reached: {_reason(cause)}") from None
        raise SourceError(_nothing_at(path, field)) from None
    # The libraries behind fsspec have errors of their own, with no base in common.
    except Exception as error:
        raise SourceError(f"{field}: {path!r} cannot be reached: {_reason(error)}") from None
    if not found:
        raise SourceError(_nothing_at(path, field))
    return found


def _nothing_at(path: str, field: str) -> str:
    """The message for a URL that names no file: of an s3 one, whether it is the bucket that is not there."""
    scheme, _, rest = path.partition("://")
    bucket = rest.partition("/")[0]
    if scheme == "s3" and not bucket:
        return f"{field}: {path!r} names no bucket; give s3://BUCKET/KEY"
    if scheme == "s3" and not fsspec.filesystem("s3").exists(bucket):
        return f"{field}: there is no bucket {bucket!r}, which {path!r} names; give a URL that exists"
    found = "matches" if "*" in path else "is found at"
    return f"{field}: nothing {found} {path!r}; give a URL that exists"


def _filesystem(url: str) -> tuple[Any, str]:
    """The file system that holds `url`, and the file's name there."""
    options: dict[str, Any] = {}
    if url.startswith(("http://", "https://")):
        import aiohttp  # what fsspec speaks HTTP with

        # Without this a whole file has five minutes, however steadily it comes.
        options["timeout"] = aiohttp.ClientTimeout(total=None, sock_connect=STALL_S, sock_read=STALL_S)
    filesystem, name = fsspec.url_to_fs(url, **({"client_kwargs": options} if options else {}))
    return filesystem, name


def _knows_ranges(filesystem: Any, name: str, size: int) -> bool:
    """Whether the server sends parts: they say so too seldom, so the last byte is asked for."""
    if size < 2:
        return False
    with filesystem.open(name, "rb", block_size=1) as stream:
        try:
            stream.seek(size - 1)
            return len(stream.read(1)) == 1
        except (ValueError, io.UnsupportedOperation):
            return False


class _Unread(io.RawIOBase):
    """A file of fsspec as the raw part of a buffered reader: its own `readline` knows no limit."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._stream.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def readinto(self, buffer: Any) -> int:
        block = self._stream.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)


def _reason(error: BaseException) -> str:
    if isinstance(error, ImportError):
        wanted = "atoll[s3]" if "s3fs" in str(error) else str(error.name or error)
        return f"install {wanted}"
    if isinstance(error, TimeoutError) and error.strerror is None:
        return f"the server sent nothing for {STALL_S:g} s"
    if isinstance(error, io.UnsupportedOperation):
        return "it cannot be read from the middle"
    if isinstance(error, FileNotFoundError) and error.strerror is None:  # of a remote store
        return "it is not there any more"
    return str(getattr(error, "strerror", None) or error) or type(error).__name__
