"""Define the parts of a MemoryIndex that describe the embedding service and the pods that the operator creates."""

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Section(BaseModel):
    """A part of a specification; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class SecretKey(Section):
    """One key of a Secret in the namespace of the MemoryIndex."""

    secret_name: str
    key: str = "apiKey"


class CaSecret(Section):
    """The key of a Secret in the namespace of the MemoryIndex that holds certificates of an authority."""

    name: str
    key: str = "ca.crt"


def _require_plain(url: str) -> str:
    """Return the URL if it is an http or https URL without credentials whose port, if it has one, can exist.

    Raises:
        ValueError: the URL is not of this form. The message does not quote the URL, which may contain a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # whose message quotes the host or the port
        raise ValueError("must have a host that can exist, and a port from 1 to 65535 or none") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise ValueError("must be http://HOST or https://HOST, without a user name and a password")
    if port == 0:
        raise ValueError("must have a port from 1 to 65535 or none")
    return url


HttpUrl = Annotated[str, AfterValidator(_require_plain)]


class External(Section):
    """An embedder that the operator does not run. `model` is the model's name there, if it is another one than ours."""

    url: HttpUrl
    api: Literal["MemoryIndex", "OpenAI", "TEI", "Voyage", "Cohere"] = "MemoryIndex"
    model: str | None = None
    api_key: SecretKey | None = None
    ca_secret: CaSecret | None = None

    @property
    def host(self) -> str:
        """The host of the URL, in lower case."""
        return urlsplit(self.url).hostname or ""


class PodTemplate(Section):
    """Fields that are added to the pods of embedder and workers; nested fields are those of a Kubernetes pod."""

    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    priority_class_name: str | None = None
    affinity: dict[str, Any] = Field(default_factory=dict)
    topology_spread_constraints: tuple[dict[str, Any], ...] = ()
    image_pull_secrets: tuple[dict[str, Any], ...] = ()
    env: tuple[dict[str, Any], ...] = ()


class Embedder(Section):
    """Settings of the embedding service.

    `allow_from` lists the peers, as in a NetworkPolicy, that may call the embedder. None means all pods in the
    namespace of the MemoryIndex. `node_selector`, `tolerations` and `priority_class_name` are those of the embedder's
    pods and of the Job that fetches their model file, `pod_annotations` those of the embedder's pods; workers need not
    run on nodes with GPUs.
    """

    min_replicas: int = 1
    max_replicas: int = 1
    target_queue_seconds: float = 10
    scale_down_delay_seconds: float = 300
    scaling: Literal["Operator", "External"] = "Operator"
    api_key: SecretKey | None = None
    allow_from: tuple[dict[str, Any], ...] | None = None
    image: str | None = None
    resources: dict[str, Any] = Field(default_factory=dict)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    runtime_class_name: str | None = None
    priority_class_name: str | None = None
    gpu_layers: int = -1
    gpu_memory: int | None = None
    pod_annotations: dict[str, str] = Field(default_factory=dict)
    pod_template: PodTemplate = PodTemplate()
    external: External | None = None
