"""Define the parts of a MemoryIndex that describe the embedding service and the pods that the operator creates."""

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

COMPONENT = "embedder"
PORT = 8080


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


class CaConfigMap(Section):
    """The key of the operator's own ConfigMap that holds a copy of certificates of an authority."""

    name: str
    key: str


class ServingSecret(Section):
    """A Secret in the namespace of the MemoryIndex, in the form of cert-manager, with a certificate of its embedder."""

    secret_name: str


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


_SERVICE_URL = re.compile(rf"https?://(?P<name>[^./:@]+)-{COMPONENT}\.(?P<namespace>[^./:@]+)\.svc:{PORT}")
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


class EmbedderReference(Section):
    """A MemoryIndex whose embedder is used; an empty `namespace` is that of the object with the reference.

    `api_key` is the referring object's own key for that embedder.
    """

    name: str
    namespace: str = ""
    api_key: SecretKey | None = None


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
    tls: ServingSecret | None = None
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
    ref: EmbedderReference | None = None

    def resolved(self, namespace: str) -> Self:
        """Return the embedder of an object in `namespace`, where a reference has become an external embedder.

        Its URL is that of the Service which the operator makes for the named MemoryIndex, without TLS: whether that
        object's embedder speaks TLS is known only once the object has been read.
        """
        if self.ref is None:
            return self
        ref = self.ref.model_copy(update={"namespace": self.ref.namespace or namespace})
        external = External(url=service_url(ref.namespace, ref.name, COMPONENT), api_key=ref.api_key)
        return self.model_copy(update={"ref": ref, "external": external})


def service_host(namespace: str, name: str, component: str) -> str:
    """Return the host in the cluster of a Service that the operator makes for an embedder of a MemoryIndex."""
    return f"{name}-{component}.{namespace}.svc"


def service_url(namespace: str, name: str, component: str, *, tls: bool = False) -> str:
    """Return the URL in the cluster of such a Service, whose embedder speaks HTTPS with `tls` True."""
    return f"http{'s' if tls else ''}://{service_host(namespace, name, component)}:{PORT}"


def embedder_owner(url: str) -> tuple[str, str] | None:
    """Return namespace and name of the MemoryIndex whose embedder has this URL, None if it is no such URL."""
    found = _SERVICE_URL.fullmatch(url)
    return (found["namespace"], found["name"]) if found else None
