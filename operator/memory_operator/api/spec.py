"""Define the MemoryIndex as the operator reads it: a frozen model of what the Kubernetes API server has checked.

By the custom resource definition, the API server refuses invalid objects and fills in defaults. The defaults are
repeated here only for objects that were written before a field existed. Unknown fields are ignored, so that a newer
custom resource definition does not stop an older operator.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memory_operator.api.embedder import (
    COMPONENT,
    CaConfigMap,
    CaSecret,
    Embedder,
    HttpUrl,
    SecretKey,
    Section,
    service_url,
)

Manifest = dict[str, Any]

FINALIZER = "memory-index.dev/cleanup"
API_VERSION = "memory-index.dev/v1alpha1"
ANNOTATION_RECONCILE_AT = "memory-index.dev/reconcile-at"
ANNOTATION_ALLOWED_NAMESPACES = "memory-index.dev/allowed-namespaces"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class ClusterRef(Section):
    """The reference to a CloudNativePG Cluster; without a namespace it is in the namespace of the MemoryIndex."""

    name: str
    namespace: str | None = None


class ClientCertificateRef(Section):
    """A Secret of the type kubernetes.io/tls in the namespace of the MemoryIndex, with the certificate of a role."""

    secret_name: str


class CredentialsRef(Section):
    """The name of the Secret that contains the connection URI, and the key of the URI in the Secret.

    `client_certificate` is the certificate by which the role of the URI logs in; None if it has a password.
    """

    secret_name: str | None = None
    key: str = "uri"
    client_certificate: ClientCertificateRef | None = None


class Extension(Section):
    """How pgvector is installed in the database, and the oldest version that is accepted."""

    management: Literal["Database", "Observe"] = "Database"
    minimum_version: str = "0.8.4"


class DatabaseTls(Section):
    """How the database server is verified; a field that is None has a default that depends on the database."""

    mode: Literal["VerifyFull", "VerifyCA", "Require"] | None = None
    ca_secret: CaSecret | None = None


class Columns(Section):
    """What the columns of the table are called; a field that is None has the name that the table made by us has.

    An empty text says that the table has no such column. The text of a memory may come from several columns.
    `embedding` is our own column of vectors, which has another name where this one is taken.
    """

    id: str | None = None
    content: tuple[str, ...] | None = None
    sensitive: str | None = None
    deleted_at: str | None = None
    search_vector: str | None = None
    user_id: str | None = None
    category: str | None = None
    tags: str | None = None
    expanded_keywords: str | None = None
    importance: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    embedding: Literal["embedding", "memory_embedding"] | None = None


class Database(Section):
    """The database and the table of memories."""

    name: str
    table: str = "memories"
    columns: Columns = Columns()
    sensitivity: Literal["Column", "None"] = "Column"
    text_search_configuration: str | None = None
    cluster: ClusterRef | None = None
    credentials: CredentialsRef = CredentialsRef()
    tls: DatabaseTls = DatabaseTls()
    existing_vectors: Literal["Refuse", "Keep", "Discard"] = "Refuse"
    extension: Extension = Extension()


class ImageSource(Section):
    """A model file inside a container image."""

    reference: str
    path: str
    digest: str


class PvcSource(Section):
    """A model file on a volume; `path` is relative to the volume's root."""

    claim_name: str
    path: str
    digest: str


class ModelVolume(Section):
    """The volume that a model file is fetched into; `size` is in Mi, Gi or Ti."""

    size: str = Field(default="9Gi", pattern="^[1-9][0-9]{0,5}(Mi|Gi|Ti)$")
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ("ReadWriteOnce",)

    @property
    def mebibytes(self) -> int:
        """The size in MiB."""
        return int(self.size[:-2]) << {"Mi": 0, "Gi": 10, "Ti": 20}[self.size[-2:]]


class HttpSource(Section):
    """A model file at a URL."""

    url: HttpUrl
    sha256: str
    volume: ModelVolume = ModelVolume()


class Source(Section):
    """The origin of the model file; exactly one field is set."""

    image: ImageSource | None = None
    pvc: PvcSource | None = None
    http: HttpSource | None = None


class Embedding(Section):
    """The embedding model and its file, and whether texts may leave the cluster."""

    model: str
    dimensions: int = 1024
    query_egress: str = "Denied"
    source: Source | None = None
    pooling: str | None = None
    max_tokens: int | None = None
    query_prefix: str | None = None
    document_prefix: str | None = None


class Index(Section):
    """Build parameters of the HNSW index."""

    m: int = 24
    ef_construction: int = 128


class Backfill(Section):
    """Settings of the backfill Job."""

    parallelism: int = 1
    batch_size: int | None = None
    max_attempts: int = 5
    resources: Manifest = Field(default_factory=dict)


class PvcFile(Section):
    """A file on a volume; `path` is relative to the volume's root."""

    claim_name: str
    path: str


class ConfigMapKey(Section):
    """One key of a ConfigMap in the namespace of the MemoryIndex."""

    name: str
    key: str = "queries.jsonl"


class Gate(Section):
    """The labelled queries by which a swap is judged, and the largest accepted drop of recall@10."""

    pvc: PvcFile | None = None
    config_map: ConfigMapKey | None = None
    max_recall_drop: float = 0.05


class Swap(Section):
    """The condition under which the next model may replace the active model."""

    gate: Gate | None = None


class Graph(Section):
    """Whether memories are linked to their concepts, and recalls use these links."""

    enabled: bool = False


class Spec(Section):
    """The specification of a MemoryIndex: its desired state."""

    suspend: bool = False
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    database: Database
    embedding: Embedding
    index: Index = Index()
    backfill: Backfill = Backfill()
    embedder: Embedder = Embedder()
    swap: Swap = Swap()
    graph: Graph = Graph()


class MemoryIndex(BaseModel):
    """One MemoryIndex object: its identity, its specification and the status that was last written.

    `system_identifier` and `cluster_name` are the system identifier and the setting `cluster_name` of the Postgres
    server. They are taken from the status until the operator has read them from the server; a name that was never read
    is None. `cluster_namespace` is the namespace of the server's Cluster if the server is certainly one of its
    instances, else empty. `kubernetes` identifies the Kubernetes cluster, once the server is known.
    `allowed_namespaces` are the other namespaces whose objects may use the embedder of this one. `copied_authority` is
    where the workers find the authority of an embedder that the operator runs; None if the public ones verify it.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    namespace: str
    uid: str
    created_at: datetime
    generation: int
    spec: Spec
    system_identifier: str = ""
    kubernetes: str = ""
    cluster_name: str | None = None
    cluster_namespace: str = ""
    status: Manifest = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    deleted_at: datetime | None = None
    requested_at: str = ""
    allowed_namespaces: frozenset[str] = frozenset()
    copied_authority: CaConfigMap | None = None

    @property
    def model_digest(self) -> str | None:
        """Return the digest of the specified model file; None if no digest is specified."""
        source = self.spec.embedding.source
        if source is None:
            return None
        given = source.image or source.pvc
        return f"sha256:{source.http.sha256}" if source.http else given.digest if given else None

    @property
    def fetched_source(self) -> HttpSource | None:
        """The URL of the embedder's model file, with its digest and volume; None if no file has to be fetched."""
        source = self.spec.embedding.source
        return source.http if source and self.runs_embedder else None

    @property
    def cluster(self) -> tuple[str, str] | None:
        """Return namespace and name of the CloudNativePG Cluster; None if the database is not in such a Cluster."""
        cluster = self.spec.database.cluster
        return (cluster.namespace or self.namespace, cluster.name) if cluster else None

    @property
    def named_table(self) -> tuple[str, str]:
        """Return the names of the database and, without a schema, of the table."""
        return self.spec.database.name, self.spec.database.table.rpartition(".")[2]

    @property
    def secret_name(self) -> str:
        """Return the name of the Secret with the connection URI; by default it is CloudNativePG's Secret."""
        named = self.spec.database.credentials.secret_name
        return named or (f"{self.spec.database.cluster.name}-app" if self.spec.database.cluster else "")

    @property
    def certificate_secret(self) -> str:
        """Return the name of the Secret with the certificate of the database's role; empty if it logs in without."""
        named = self.spec.database.credentials.client_certificate
        return named.secret_name if named else ""

    @property
    def database_tls_mode(self) -> str | None:
        """Return how the database server is verified at least; None if the connection URI alone decides."""
        tls = self.spec.database.tls
        return tls.mode or ("VerifyFull" if self.spec.database.cluster or tls.ca_secret else None)

    @property
    def has_database_ca(self) -> bool:
        """Return whether the database server is verified by an authority of its own, not by the public ones."""
        verified = self.database_tls_mode in {"VerifyFull", "VerifyCA"}
        return verified and bool(self.spec.database.cluster or self.spec.database.tls.ca_secret)

    @property
    def runs_embedder(self) -> bool:
        """Return whether the operator runs an embedder for this object; otherwise it uses an external one."""
        return self.spec.embedder.external is None

    @property
    def embedder_key(self) -> SecretKey | None:
        """Return the Secret and key that hold the embedder's API key, None if the embedder needs no API key."""
        embedder = self.spec.embedder
        return embedder.external.api_key if embedder.external else embedder.api_key

    @property
    def serves_tls(self) -> bool:
        """Return whether the operator runs an embedder that speaks HTTPS."""
        return self.runs_embedder and self.spec.embedder.tls is not None

    @property
    def embedder_authority(self) -> CaSecret | CaConfigMap | None:
        """Return what holds the certificates of the embedder's authority; None if the public authorities verify it."""
        external = self.spec.embedder.external
        return external.ca_secret if external and external.ca_secret else self.copied_authority

    def over_tls(self, authority: CaConfigMap | None) -> Self:
        """Return the object with an embedder that is called by HTTPS, and with where workers find its authority.

        The embedder is its own, or that of the object to which it refers.
        """
        embedder = self.spec.embedder
        if embedder.ref and embedder.external:
            url = service_url(embedder.ref.namespace, embedder.ref.name, COMPONENT, tls=True)
            external = embedder.external.model_copy(update={"url": url})
            embedder = embedder.model_copy(update={"external": external})
        spec = self.spec.model_copy(update={"embedder": embedder})
        return self.model_copy(update={"spec": spec, "copied_authority": authority})

    @property
    def key_remedy(self) -> str:
        """Return what to do about an API key that is lost or refused."""
        key = self.embedder_key
        named = f"key {key.key} of Secret {self.namespace}/{key.secret_name}" if key else "a Secret"
        return f"Put a valid key into {named} ({self.embedder_key_field}); pods read it anew without a restart."

    @property
    def embedder_key_field(self) -> str:
        """Return the field that names the Secret with the embedder's API key."""
        embedder = self.spec.embedder
        section = "embedder.ref" if embedder.ref else "embedder.external" if embedder.external else "embedder"
        return f"spec.{section}.apiKey"


def allowed_namespaces(annotations: Manifest) -> frozenset[str]:
    """Parse the annotation of a Cluster or a MemoryIndex that lists the namespaces which may use it.

    There is no wildcard. A part that cannot be the name of a namespace is left out, since the API server refuses a
    NetworkPolicy that names it.
    """
    names = str(annotations.get(ANNOTATION_ALLOWED_NAMESPACES, "")).split(",")
    return frozenset(name.strip() for name in names if _NAMESPACE.fullmatch(name.strip()))


def mapping_in(manifest: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return the mapping at this path of a manifest; an empty one if the path is absent or holds another type."""
    found: Any = manifest
    for field in path:
        found = found.get(field) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def text_in(manifest: Mapping[str, Any], *path: str) -> str | None:
    """Return the string at this path of a manifest; None if the path is absent or holds another type."""
    found = mapping_in(manifest, *path[:-1]).get(path[-1])
    return found if isinstance(found, str) else None


class InvalidSpecError(Exception):
    """The object is no valid MemoryIndex; the message names the invalid fields, never their values."""


def parse(manifest: Manifest) -> MemoryIndex:
    """Parse a MemoryIndex manifest; raise InvalidSpecError with the names of the invalid fields.

    What is malformed in the status counts as unknown, since it is ours and is written anew.
    """
    metadata, status = manifest["metadata"], dict(mapping_in(manifest, "status"))
    annotations = metadata.get("annotations") or {}
    try:
        given = Spec.model_validate(manifest.get("spec") or {})
        spec = given.model_copy(update={"embedder": given.embedder.resolved(metadata["namespace"])})
    except ValidationError as error:
        wrong = "; ".join(
            f"spec.{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors(include_input=False)
        )
        raise InvalidSpecError(wrong) from None  # the chained error would show the values
    return MemoryIndex(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        created_at=metadata["creationTimestamp"],
        generation=metadata.get("generation", 0),
        spec=spec,
        system_identifier=text_in(status, "database", "systemIdentifier") or "",
        cluster_name=text_in(status, "database", "clusterName"),
        status=status,
        finalizers=tuple(metadata.get("finalizers") or ()),
        deleted_at=metadata.get("deletionTimestamp"),
        requested_at=annotations.get(ANNOTATION_RECONCILE_AT, ""),
        allowed_namespaces=allowed_namespaces(annotations),
    )


def parsed(manifest: Manifest) -> MemoryIndex | None:
    """Parse a MemoryIndex manifest; return None if it is invalid, because the operator does not act on it then."""
    try:
        return parse(manifest)
    except InvalidSpecError:
        return None
