"""Directories named on the command line."""

from __future__ import annotations

from pathlib import Path

import typer


def local_directory(text: str) -> Path:
    """The path that `text` is; a URL, which a path would quietly turn into a folder named `s3:`, is refused."""
    if "://" in text:
        raise typer.BadParameter(
            f"{text} is a URL; must be a directory, copy it to an object store from there"
        )
    return Path(text)
