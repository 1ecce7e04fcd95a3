"""Where text comes from."""

from __future__ import annotations

from pathlib import Path

PYDOC = "pydoc"


def read_text(source: str) -> str:
    """The text of `data.source`: `pydoc`, or a UTF-8 file. ValueError names the field, what is wrong and where."""
    if source == PYDOC:
        return _pydoc_text()
    path = Path(source)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(
            f"data.source: no file {source!r} on this node; give `pydoc` or a shared path"
        ) from None
    except OSError as error:
        raise ValueError(f"data.source: {source!r} cannot be read: {error.strerror}") from None
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"data.source: {source!r} is not UTF-8: byte {raw[error.start]:#04x} at offset {error.start}; "
            "convert the file to UTF-8"
        ) from None


def _pydoc_text() -> str:
    """The help topics of the running Python, in the order of their names: about 0.5 MB of English, no download."""
    from pydoc_data.topics import topics  # imported late: it is half a megabyte that most jobs do not read

    return "\n\n".join(f"{name}\n\n{topics[name]}" for name in sorted(topics))
