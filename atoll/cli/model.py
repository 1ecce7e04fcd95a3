"""`atoll model`: the parts of a job file that describe a Hugging Face directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from atoll.cli.connection import Json
from atoll.cli.output import print_json
from atoll.errors import AtollError


class ModelDirectoryError(AtollError):
    """A directory whose model cannot be trained here; every reason is in the message."""


def model(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory with a config.json and safetensors.")
    ],
    as_json: Json = False,
) -> None:
    """Prints the model and data sections of a job that starts from a Hugging Face directory; asks no server."""
    sections = sections_of(directory)
    if as_json:
        print_json(sections)
    else:
        print(yaml.safe_dump(sections, sort_keys=False), end="")


def sections_of(directory: Path) -> dict[str, Any]:
    from actors.training.interchange.config import read_config
    from actors.training.interchange.failure import InterchangeError
    from actors.training.interchange.names import TOKENIZER_NAME

    try:
        found = read_config(directory)
    except InterchangeError as error:
        reasons = "".join(f"\n  {reason}" for reason in error.reasons)
        raise ModelDirectoryError(f"{error.sentence}:{reasons}") from None
    fields = found.model.model_dump(mode="json", exclude_defaults=True)
    data: dict[str, Any] = {"vocab_size": found.vocab_size}
    tokenizer = directory.absolute() / TOKENIZER_NAME
    if tokenizer.is_file():
        data = {"tokenizer": "file", "tokenizer_file": str(tokenizer)} | data
    return {"model": fields | {"weights": str(directory.absolute())}, "data": data}
