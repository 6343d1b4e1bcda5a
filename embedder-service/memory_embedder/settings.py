"""Every setting of the service, in one class: command-line options win over `MEMORY_EMBEDDER_*` variables, which win
over these defaults.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.models.profiles import ModelProfile, Pooling, find_profile

Digest = Annotated[str, StringConstraints(pattern=r"^(sha256:)?[0-9a-f]{64}$")]

CPU_BATCH_TOKENS = 128  # as fast as 256 on F16 weights, faster on quantised ones, and the wait is half
GPU_BATCH_TOKENS = 2048  # enough to fill a GPU, short enough for a query to wait for


class EmbedderSettings(BaseSettings):
    """Settings of `memory-embedder serve`."""

    model_config = SettingsConfigDict(env_prefix="MEMORY_EMBEDDER_", extra="ignore", protected_namespaces=())

    model: str = "all-MiniLM-L6-v2"
    model_file: Path | None = None
    digest: Digest | None = None
    served_name: str | None = None
    dimensions: int | None = Field(default=None, ge=1)
    pooling: Pooling | None = None
    max_tokens: int | None = Field(default=None, ge=3)
    query_prefix: str | None = None
    document_prefix: str | None = None

    gpu_layers: int = Field(default=0, ge=-1)
    allow_cpu: bool = False
    gpu_memory_limit: int | None = Field(default=None, ge=1, description="MiB")
    threads: int = Field(default=0, ge=0)
    contexts: int = Field(default=0, ge=0)
    batch_tokens: int = Field(default=0, ge=0)
    tune_seconds: float = Field(default=2.0, ge=0)

    host: str = "0.0.0.0"  # noqa: S104 -- a pod is reached through its address; the NetworkPolicy decides by whom
    port: int = Field(default=8080, ge=0, le=65535)
    api_key_file: Path | None = None
    queued_query_tokens: int = Field(default=32_768, ge=1)
    queued_document_tokens: int = Field(default=262_144, ge=1)
    query_streak: int = Field(default=8, ge=1)
    query_cache: int = Field(default=4096, ge=0)
    max_inputs: int = Field(default=2048, ge=1)
    max_body_bytes: int = Field(default=8 << 20, ge=1024)
    max_inflight_bytes: int = Field(default=128 << 20, ge=1024)
    body_timeout_seconds: float = Field(default=30.0, gt=0)
    drain_seconds: float = Field(default=50.0, gt=0)
    hang_seconds: float = Field(default=120.0, gt=0)

    otlp_endpoint: str | None = None
    termination_log: Path = Path("/dev/termination-log")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"

    def profile(self) -> ModelProfile:
        """The model's facts: from the table, or entirely from flags for `custom`; flags override single facts."""
        if self.model == "custom":
            return self._custom_profile()
        known = find_profile(self.model)
        if self.dimensions is not None and self.dimensions != known.dimensions:
            raise EmbedderError(
                ErrorKind.CONFIGURATION,
                f"--dimensions {self.dimensions} was asked for but {known.name} yields {known.dimensions}; "
                "declare what the model yields.",
            )
        return ModelProfile(
            name=self.served_name or known.name,
            dimensions=known.dimensions,
            max_tokens=self.max_tokens or known.max_tokens,
            pooling=self.pooling or known.pooling,
            query_prefix=known.query_prefix if self.query_prefix is None else self.query_prefix,
            document_prefix=known.document_prefix if self.document_prefix is None else self.document_prefix,
            licence=known.licence,
            default_file=known.default_file,
        )

    def file(self) -> Path:
        """The model file."""
        return self.model_file or Path("/models") / self.profile().default_file

    def _custom_profile(self) -> ModelProfile:
        if self.dimensions is None or self.pooling is None or self.max_tokens is None or self.model_file is None:
            raise EmbedderError(
                ErrorKind.CONFIGURATION,
                "--model custom also needs --model-file, --dimensions, --pooling and --max-tokens.",
            )
        return ModelProfile(
            name=self.served_name or "custom",
            dimensions=self.dimensions,
            max_tokens=self.max_tokens,
            pooling=self.pooling,
            query_prefix=self.query_prefix or "",
            document_prefix=self.document_prefix or "",
            licence="unknown",
            default_file=self.model_file.name,
        )
