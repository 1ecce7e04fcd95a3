"""The options that every verb shares, and the client made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atoll.client import AtollClient
from atoll.errors import AtollError
from orchestrator.settings import InvalidSettingsError, Settings, read_settings

Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="Address of the API. (default: ATOLL_URL, or http://127.0.0.1:8750)"
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File holding the API's bearer token. (default: ATOLL_TOKEN_FILE or ATOLL_TOKEN)",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output and nothing else.")]
JobReference = Annotated[
    str, typer.Argument(metavar="ID", help="Job id, a unique prefix of one, or the name of exactly one job.")
]
JobPath = Annotated[
    str, typer.Argument(metavar="FILE", help="Job file, YAML or JSON; - reads standard input.")
]


ANSWER_RETRY_S = 5.0
FOLLOW_RETRY_S = 60.0
"""For verbs that stay until a job has ended: a restart of the control plane must not end them, the job goes on."""


class WrongSettingError(AtollError):
    """An environment variable with a value that cannot be taken."""


class TokenFileError(AtollError):
    """A token file that gives no token."""


def connect(
    url: str | None, token_file: Path | None, *, retry_budget_s: float = ANSWER_RETRY_S
) -> AtollClient:
    """A client; flags go before the environment."""
    try:
        settings = read_settings()
    except InvalidSettingsError as error:
        raise WrongSettingError(str(error)) from None
    return AtollClient(url or settings.url, token(settings, token_file), retry_budget_s=retry_budget_s)


def token(settings: Settings, token_file: Path | None) -> str | None:
    """The bearer token: file from the flag, file from the environment, token from the environment, or none."""
    path = token_file or settings.token_file
    if path is None:
        return settings.token.get_secret_value() if settings.token else None
    return read_token(path)


def read_token(path: Path) -> str:
    """The token in a file: one line of visible ASCII."""
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise TokenFileError(f"cannot read the token file {path}: {reason}") from None
    if not text:
        raise TokenFileError(f"the token file {path} is empty; it must hold the token in one line")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise TokenFileError(f"the token file {path} must hold one line of visible ASCII characters")
    return text
