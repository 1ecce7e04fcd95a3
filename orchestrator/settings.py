"""The one place that reads environment variables: `ATOLL_...`, and `DATABASE_URL` for the database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Settings of the control plane. Command-line flags of `atoll serve` override them."""

    model_config = SettingsConfigDict(env_prefix="ATOLL_", extra="ignore", populate_by_name=True)

    database_url: str = Field(
        default="", validation_alias=AliasChoices("ATOLL_DATABASE_URL", "DATABASE_URL", "database_url")
    )
    """SQLAlchemy URL; empty: SQLite in `state_directory`."""
    state_directory: Path = Path(".atoll")
    """SQLite file, job directories and sockets of a local run."""
    storage_directory: Path | None = None
    """Checkpoints; must be seen by every node. None: `state_directory/jobs`."""
    host: str = "127.0.0.1"
    port: int = Field(default=8750, ge=0, le=65535)
    token: SecretStr | None = None
    """Bearer token of the API; required for any listen address that is not loopback."""
    token_file: Path | None = None
    url: str = "http://127.0.0.1:8750"
    """Where the command line and scripts find the API."""
    ray_address: str | None = Field(
        default=None, validation_alias=AliasChoices("ATOLL_RAY_ADDRESS", "RAY_ADDRESS", "ray_address")
    )
    """`HOST:PORT` of an existing Ray cluster."""
    internal_token: SecretStr | None = None
    """Shared by API and controller for live logs; `atoll serve` makes a random one."""
    controller_host: str = "127.0.0.1"
    """Address the controller's private endpoint listens on; of a pod: its own address, so that the API reaches it."""
    controller_port: int = Field(default=0, ge=0, le=65535)
    """Port of the private endpoint; 0: any free one (the API finds it in the leader lease)."""
    max_body_bytes: int = Field(default=1 << 20, ge=1024)
    fabric_file: str | None = None
    """Topology files merged over the labels that Ray reports: `[NODES=]FILE`, several with the separator of PATH
    between them."""
    user_code: bool = True
    """Whether jobs may name a module of their own (`model.import`), which runs as the ranks run."""
    queue_policy_file: Path | None = None
    """YAML file of quotas, weights and bounds of the queue; None: every project is equal and has no quota."""
    log_json: bool = False

    def resolved_database_url(self) -> str:
        """The URL in use; a bare `postgresql://` is given the psycopg driver."""
        url = self.database_url or f"sqlite:///{(self.state_directory / 'atoll.db').absolute()}"
        for bare in ("postgresql://", "postgres://"):
            if url.startswith(bare):
                return "postgresql+psycopg://" + url.removeprefix(bare)
        return url

    def resolved_storage_directory(self) -> Path:
        return (self.storage_directory or self.state_directory / "jobs").absolute()


class InvalidSettingsError(ValueError):
    """Settings that cannot be taken; the message names every one, with its value and what would be right."""


def read_settings(**given: Any) -> Settings:
    """The settings of the environment with `given` put over them. InvalidSettingsError."""
    try:
        return Settings(**given)
    except ValidationError as error:
        problems = [
            f"{_source(str(found['loc'][0]), given)} is {str(found['input'])[:80]!r}: {found['msg']}"
            for found in error.errors(include_url=False)
        ]
    raise InvalidSettingsError("; ".join(problems))


def _source(name: str, given: dict[str, Any]) -> str:
    """Where a setting came from. Secrets are never refused here, so none is ever told."""
    return f"--{name.replace('_', '-')}" if name in given else f"ATOLL_{name.upper().removeprefix('ATOLL_')}"
