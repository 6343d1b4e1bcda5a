"""Settings of the operator process, from the environment."""

from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from memory_operator.reconcile.core import RequeueIntervals
from memory_operator.resources.common import Images


class Settings(BaseSettings):
    """Every setting, each from the variable of its name with the prefix MEMORY_OPERATOR_."""

    model_config = SettingsConfigDict(env_prefix="MEMORY_OPERATOR_", frozen=True)

    image: str = "localhost/memory-operator:dev"
    embedder_image: str = "localhost/memory-embedder:dev"
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    namespaces: Annotated[tuple[str, ...], NoDecode] = ()
    resync_seconds: float = Field(default=30.0, gt=0)
    workers: int = Field(default=4, ge=1, le=64)
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    health_port: int = Field(default=8080, ge=0, le=65535)
    metrics_port: int = Field(default=9090, ge=0, le=65535)

    @field_validator("namespaces", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """A comma-separated list; empty means all namespaces."""
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @property
    def images(self) -> Images:
        """Images of the pods that the operator starts."""
        return Images(operator=self.image, embedder=self.embedder_image, pull_policy=self.image_pull_policy)

    @property
    def intervals(self) -> RequeueIntervals:
        """How soon to look again."""
        return RequeueIntervals(settled=self.resync_seconds)
