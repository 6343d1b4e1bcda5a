"""Settings of the `memory` processes, from the environment.

One class serves every command: they share the database and the embedder, and a Job of the operator sets the same
variables whichever command it runs.
"""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

from memory_recall.errors import InvalidConfiguration
from memory_recall.hnsw.definition import DEFAULT_EF_CONSTRUCTION, DEFAULT_M
from memory_recall.postgres.connection import DsnFile, DsnSource, DsnText

TableName = Annotated[str, StringConstraints(pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$")]

_CHECKOUT_MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"
_IMAGE_MIGRATIONS = Path("/opt/memory-index/migrations")
_TERMINATION_LOG = Path("/dev/termination-log")


def _default_migrations() -> Path:
    return _CHECKOUT_MIGRATIONS if (_CHECKOUT_MIGRATIONS / "env.py").is_file() else _IMAGE_MIGRATIONS


def _default_termination_log() -> Path | None:
    return _TERMINATION_LOG if os.access(_TERMINATION_LOG, os.W_OK) else None


class Settings(BaseSettings):
    """What the `memory` commands are told by their environment, each variable prefixed with MEMORY_."""

    model_config = SettingsConfigDict(env_prefix="MEMORY_", extra="ignore", hide_input_in_errors=True)

    database_url: SecretStr | None = None
    database_url_file: Path | None = None
    table: TableName = "memories"
    model: str = "all-MiniLM-L6-v2"
    dimensions: int | None = Field(default=None, ge=1, le=4000)
    provider: Literal["local", "voyage"] = "local"
    query_egress: Literal["denied", "allowed"] = "denied"
    embedder_url: str | None = None
    embedder_api_key: SecretStr | None = None
    hosted_requests_per_minute: int = Field(default=2000, ge=1)
    hosted_tokens_per_minute: int = Field(default=3_000_000, ge=1000)
    embedder_trusted_hosts: str = ""
    embedder_timeout: float = Field(default=120, gt=0)
    migrations_dir: Path = Field(default_factory=_default_migrations)
    migrate_lock_timeout: float = Field(default=600, ge=0)
    existing_vectors: Literal["refuse", "keep", "discard"] = "refuse"
    index_m: int = Field(default=DEFAULT_M, ge=2, le=100)
    index_ef_construction: int = Field(default=DEFAULT_EF_CONSTRUCTION, ge=4, le=1000)
    index_maintenance_memory: str | None = Field(default=None, pattern=r"^[0-9]+(kB|MB|GB)$")
    index_check_seconds: float = Field(default=86_400, ge=0)
    index_min_recall: float = Field(default=0.85, ge=0, le=1)
    backfill_batch_tokens: int = Field(default=2048, ge=1)
    backfill_batch_size: int = Field(default=32, ge=1, le=2048)
    backfill_concurrency: int = Field(default=4, ge=1, le=64)
    backfill_max_attempts: int = Field(default=5, ge=1)
    backfill_retry_seconds: float = Field(default=2.0, gt=0)
    backfill_partitions: int = Field(default=1, ge=1)
    backfill_rows_per_second: float | None = Field(default=None, gt=0)
    outage_timeout: float = Field(default=1800, gt=0)
    sync_poll_seconds: float = Field(default=30, gt=0)
    log_format: Literal["json", "console"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    metrics_port: int = Field(default=0, ge=0, le=65535)
    termination_log: Path | None = Field(default_factory=_default_termination_log)
    partition: int = Field(default=0, ge=0, validation_alias="JOB_COMPLETION_INDEX")

    @property
    def has_embedder(self) -> bool:
        """Whether queries can be embedded at all."""
        return self.provider != "local" or bool(self.embedder_url)

    def trusted_hosts(self) -> tuple[str, ...]:
        """Hosts outside the embedder's neighbourhood that texts may be sent to when the database names them."""
        return tuple(host.strip() for host in self.embedder_trusted_hosts.split(",") if host.strip())

    def dsn(self) -> DsnSource:
        """Where connection strings come from; a file is read anew at every connect.

        Raises:
            InvalidConfiguration: neither variable is set.
        """
        if self.database_url_file is not None:
            return DsnFile(self.database_url_file)
        if self.database_url is not None:
            return DsnText(self.database_url.get_secret_value())
        raise InvalidConfiguration(
            "No database is configured.", "Set MEMORY_DATABASE_URL_FILE to a file that holds the connection string."
        )
