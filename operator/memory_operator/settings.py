"""Define the settings of the operator process, which are read from environment variables."""

from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from memory_operator.reconcile.authorization.addresses import plain_address
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.resources.common import Images
from memory_operator.resources.model_fetch import FetchRoute
from memory_recall.settings import LogSettings


class Settings(BaseSettings):
    """All settings; `log.level`, for example, is read from MEMORY_OPERATOR_LOG_LEVEL."""

    model_config = SettingsConfigDict(
        env_prefix="MEMORY_OPERATOR_", env_nested_delimiter="_", env_nested_max_split=1, frozen=True
    )

    fetch: FetchRoute = Field(
        default=FetchRoute(),
        description="How model files are fetched, as JSON: proxy, no_proxy, proxied_hosts, ca_config_map, ca_key.",
    )
    images: Images = Images()
    lease: str = Field(
        default="",
        pattern=r"^([a-z0-9-]+/[a-z0-9.-]+)?$",
        description="The Lease by which one of several replicas is elected, as NAMESPACE/NAME; "
        "empty: this one acts alone.",
    )
    log: LogSettings = LogSettings()
    permitted: Permitted = Field(
        default=Permitted(),
        description="What authors of a MemoryIndex may choose, as JSON: lists by the names image_prefixes, "
        "priority_classes, runtime_classes, pod_annotation_prefixes, pod_label_prefixes, environment_variables, "
        "external_hosts, database_hosts.",
    )
    namespaces: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="The namespaces whose objects are reconciled, separated by commas; empty: all."
    )
    node: str = Field(
        default="", description="The IP address of the node on which the operator runs, to which it never connects."
    )
    resync_seconds: float = Field(
        default=30.0,
        gt=0,
        le=30,
        description="Seconds between two reconciles of a settled object that no event concerns.",
    )

    @field_validator("node", mode="after")
    @classmethod
    def _is_address(cls, value: str) -> str:
        address = plain_address(value)
        if value and address is None:
            raise ValueError("must be an IP address")
        return address or ""

    @field_validator("namespaces", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @property
    def node_addresses(self) -> frozenset[str]:
        """The addresses of the operator's own node; none if it is not known."""
        return frozenset({self.node} - {""})

    @property
    def namespace(self) -> str:
        """The operator's own namespace, taken from the name of its Lease; empty if no Lease is configured."""
        return self.lease.partition("/")[0]
