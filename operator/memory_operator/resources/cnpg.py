"""Build the CloudNativePG Database object through which pgvector is installed.

A database may have only one Database object. Its list of extensions can only be written as a whole. Therefore the other
entries are kept when the entry of pgvector is added. With `databaseReclaimPolicy: retain`, the database stays when the
object is deleted. CloudNativePG makes the role that the object names the owner of the database. Therefore this role is
never read from the server behind a connection URI, because a wrong or hostile server could name any role.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.resources.common import (
    ANNOTATION_INDEX_UID,
    LABEL_INDEX_NAME,
    LABEL_INDEX_NAMESPACE,
    LABEL_INSTANCE,
    LABEL_MANAGED_BY,
    MANAGER,
    fingerprint,
    labels,
    owner_references,
)

EXTENSION = "vector"
API_VERSION = "postgresql.cnpg.io/v1"


@dataclass(frozen=True)
class DatabaseObject:
    """The known facts about an existing CloudNativePG Database object."""

    namespace: str
    name: str
    owner: str
    labels: Mapping[str, str]
    extensions: tuple[Manifest, ...]
    generation: int
    observed_generation: int | None = None
    applied: bool | None = None
    message: str = ""
    deleting: bool = False
    index_uid: str | None = None
    owner_uids: frozenset[str] = frozenset()
    uid: str = ""

    def __str__(self) -> str:
        return f"Database {self.namespace}/{self.name}"

    @property
    def settled(self) -> bool:
        """Whether CloudNativePG has applied the latest generation of the object."""
        return self.applied is True and self.observed_generation == self.generation


def object_name(index: MemoryIndex) -> str:
    """Return the name of the Database object of a MemoryIndex.

    The name contains a digest, so that the MemoryIndex objects `a-b/c` and `a/b-c` (namespace/name) have different
    Database objects.
    """
    return f"{index.namespace}-{index.name}-{fingerprint([index.namespace, index.name])[:8]}"


def own_labels(index: MemoryIndex) -> dict[str, str]:
    """Return the labels of the Database object that the operator creates for this MemoryIndex."""
    return {LABEL_MANAGED_BY: MANAGER, LABEL_INDEX_NAME: index.name, LABEL_INDEX_NAMESPACE: index.namespace}


def is_made_for(index: MemoryIndex, found: DatabaseObject) -> bool:
    """Return whether the operator created the Database object for this MemoryIndex.

    The labels must name the MemoryIndex, and the annotation must contain its uid: labels alone can be copied.
    """
    return own_labels(index).items() <= found.labels.items() and found.index_uid == index.uid


def owner_uids(manifest: Manifest) -> frozenset[str]:
    """Return the uids of an object's owners. Kubernetes deletes the object when all its owners are deleted."""
    return frozenset(owner["uid"] for owner in manifest["metadata"].get("ownerReferences") or ())


def new_database_object(index: MemoryIndex, *, cluster: tuple[str, str], owner: str, version: str | None) -> Manifest:
    """Return the manifest of a new Database object that installs pgvector."""
    namespace, cluster_name = cluster
    marks = {**labels(index, "extension"), **own_labels(index)}
    return _manifest(
        index, (namespace, object_name(index)), marks, cluster=cluster_name, owner=owner, extensions=[_entry(version)]
    )


def with_extension_entry(
    index: MemoryIndex, found: DatabaseObject, *, cluster_name: str, version: str | None
) -> Manifest:
    """Return the manifest that adds or replaces the entry of pgvector in a Database object of the operator."""
    marks = {
        key: value for key, value in found.labels.items() if key.startswith(("app.kubernetes.io/", "memory-index.dev/"))
    }
    others = [entry for entry in found.extensions if entry.get("name") != EXTENSION]
    return _manifest(
        index, (found.namespace, found.name), marks, cluster=cluster_name, owner=found.owner,
        extensions=[*others, _entry(version)],
    )  # fmt: skip


def extension_entry(found: DatabaseObject) -> Manifest | None:
    """Return the entry of pgvector in the Database object, or None if the object does not request the extension."""
    return next(
        (e for e in found.extensions if e.get("name") == EXTENSION and e.get("ensure", "present") == "present"), None
    )


def quoted_object(index: MemoryIndex, *, cluster: tuple[str, str], version: str | None) -> str:
    """Return, as JSON, a Database object to which a person adds the owner before applying it."""
    namespace, cluster_name = cluster
    database = index.spec.database.name
    name = f"{cluster_name}-{database.lower().replace('_', '-').strip('-')}"
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "Database",
        "metadata": {"name": name, "namespace": namespace},
        "spec": _spec(cluster_name, database, owner="OWNER", extensions=[_entry(version)]),
    }
    return json.dumps(manifest)


def extension_lines(version: str | None) -> str:
    """Return the YAML that a person adds to a Database object that the operator does not own."""
    pinned = f", version: {version}" if version else ""
    return f"spec: {{extensions: [{{name: {EXTENSION}, ensure: present{pinned}}}]}}"


def mounted_image_lines(minimum: str) -> str:
    """Return the YAML that a person adds to a Cluster of Postgres 18 or later, which then mounts an image of pgvector.

    `minimum` is the oldest version of pgvector that the image may hold.
    """
    image = f"an image of pgvector {minimum} or later for the Cluster's major version of Postgres"
    return f"spec: {{postgresql: {{extensions: [{{name: pgvector, image: {{reference: <{image}>}}}}]}}}}"


def _entry(version: str | None) -> Manifest:
    return {"name": EXTENSION, "ensure": "present", **({"version": version} if version else {})}


def _manifest(
    index: MemoryIndex,
    place: tuple[str, str],
    marks: dict[str, str],
    *,
    cluster: str,
    owner: str,
    extensions: Iterable[Manifest],
) -> Manifest:
    """Return a Database manifest, with an owner reference if the object is in the namespace of its MemoryIndex.

    An object without an owner has no instance label: Argo CD, where it tracks objects by labels, takes that label for
    the name of an Application, and deletes what the Application's source does not have.
    """
    namespace, name = place
    if namespace == index.namespace:
        owned: Manifest = {"ownerReferences": owner_references(index)}
    else:
        owned, marks = {}, {key: value for key, value in marks.items() if key != LABEL_INSTANCE}
    return {
        "apiVersion": API_VERSION,
        "kind": "Database",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": marks,
            "annotations": {ANNOTATION_INDEX_UID: index.uid},
            **owned,
        },
        "spec": _spec(cluster, index.spec.database.name, owner=owner, extensions=extensions),
    }


def _spec(cluster: str, database: str, *, owner: str, extensions: Iterable[Manifest]) -> Manifest:
    return {
        "cluster": {"name": cluster},
        "name": database,
        "owner": owner,
        "ensure": "present",
        "databaseReclaimPolicy": "retain",
        "extensions": list(extensions),
    }
