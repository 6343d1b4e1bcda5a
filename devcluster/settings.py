"""Settings of the development cluster, read once from environment variables and passed along.

Everything that is built goes below `cache_dir`, which all clones of the repository share. Everything that belongs to
one cluster goes below `state_dir`/NAME; only the logs stay there after the cluster's end.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

REPOSITORY = Path(__file__).resolve().parents[1]

ClusterName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$")]


class DriverName(StrEnum):
    """The name of a driver."""

    KIND = "kind"
    NODE = "node"
    CURRENT = "current"


class Settings(BaseSettings):
    """Settings: directories, the wanted driver, the cluster's name, and the seconds for a component to become ready."""

    model_config = SettingsConfigDict(env_prefix="DEVCLUSTER_", frozen=True, populate_by_name=True)

    cache_dir: Path = Field(
        default_factory=lambda: Path.home() / ".cache" / "memory-index",
        validation_alias=AliasChoices("MEMORY_INDEX_CACHE", "cache_dir"),
    )
    xdg_state_home: Path = Field(
        default_factory=lambda: Path.home() / ".local" / "state",
        validation_alias=AliasChoices("XDG_STATE_HOME", "xdg_state_home"),
    )
    driver: DriverName | None = None
    name: ClusterName = "memory-index"
    ready_seconds: float = 180.0
    debian_mirror: str = ""
    base_image: str = ""
    began: float | None = None  # the time in Unix seconds at which `make` began
    cuda_architectures: str = Field(
        default="75-real;80-real;86-real;89-real;90-real",
        validation_alias=AliasChoices("CUDA_ARCHITECTURES", "cuda_architectures"),
    )

    @property
    def state_dir(self) -> Path:
        """Directory that contains one directory for each cluster of the `node` driver."""
        return self.xdg_state_home.absolute() / "memory-index" / "devcluster"
