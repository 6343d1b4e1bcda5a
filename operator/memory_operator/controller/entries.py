"""Reduce a watched object to what the operator reads of it: its entry in the cache.

Whoever may create objects in a namespace can give them the operator's labels and fill their annotations. Therefore an
entry has a fixed set of fields for each kind, and an object that no MemoryIndex, ReplicaSet or Job controls has none.
An owner reference can be forged, too; what a namespace may fill in this way is limited by the cache.

An entry is JSON, which takes a tenth of the memory of dictionaries.
"""

import json
from dataclasses import dataclass

from memory_operator.api.embedder import embedder_owner
from memory_operator.api.spec import ANNOTATION_ALLOWED_NAMESPACES, API_VERSION, Manifest, mapping_in, parsed
from memory_operator.reconcile.facts import Peer
from memory_operator.resources.common import ANNOTATION_CHOICES, LABEL_INSTANCE
from memory_operator.resources.ownership import controller
from memory_operator.resources.worker_pods import called_embedder

REFERRING = ("MemoryIndex", "Deployment")  # the kinds of objects that tell whose embedder is used
CHILDREN = ("Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget", "PersistentVolumeClaim", "ConfigMap")
PEER_BYTES = 2304  # that a Peer takes of the memory at most: with the longest names that the definition allows
Owner = tuple[str, str]  # the namespace, and the name of the MemoryIndex, or what stands for it

# By kind, the fields that are kept beside apiVersion, kind and parts of the metadata.
_FIELDS: dict[str, tuple[str, ...]] = {
    "MemoryIndex": ("spec", "status"),
    **dict.fromkeys(CHILDREN, ("spec",)),
    "Deployment": ("spec", "status"),
    "ConfigMap": ("data",),
    "Job": ("spec", "status"),
    "ReplicaSet": (),
    "Pod": ("status",),
    "Cluster": ("spec", "status"),
    "Database": ("spec", "status"),
}
_METADATA = (
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "finalizers",
    "ownerReferences",
)  # fmt: skip
# Of labels and annotations, those with these prefixes are kept.
_LABELS = ("app.kubernetes.io/", "memory-index.dev/", "job-name")
_ANNOTATIONS = ("memory-index.dev/", "cnpg.io/")
_LONGEST_ANNOTATION = 8192  # in characters
_OF_ANY_LENGTH = {ANNOTATION_ALLOWED_NAMESPACES, ANNOTATION_CHOICES}  # without one more or less would seem permitted
# Other kinds than these are kept whoever controls them: MemoryIndex objects, and those of CloudNativePG.
_CONTROLLERS = {
    **dict.fromkeys((*CHILDREN, "Job"), ((API_VERSION, "MemoryIndex"),)),
    "ReplicaSet": (("apps/v1", "Deployment"),),
    "Pod": (("apps/v1", "ReplicaSet"), ("batch/v1", "Job")),
}


@dataclass
class Entry:
    """One watched object. `version` is its resourceVersion, which changes with each write; `content` is its JSON.

    The cache empties the content of an object that it drops, and asks the API server for the object then.

    `refers_to` is the MemoryIndex whose embedder a MemoryIndex names instead of its own. In the entry of a Deployment
    it is the one whose embedder the sync worker still calls, as during a swap away from it. `peer` is what a
    MemoryIndex says about its table, if this operator can parse it.
    """

    name: str
    uid: str
    version: int
    content: bytes
    refers_to: Owner | None = None
    peer: Peer | None = None

    @property
    def size(self) -> int:
        """Return the bytes that the content and the peer take of the memory."""
        return len(self.content) + (PEER_BYTES if self.peer else 0)


def owner_of(kind: str, manifest: Manifest) -> Owner:
    """Return the key under which an object is cached: its namespace and the name of its MemoryIndex.

    A Cluster is cached under its own name instead, and a CloudNativePG Database object under its `database_key`.
    """
    meta = manifest["metadata"]
    if kind == "Database":
        cluster, spec = mapping_in(manifest, "spec", "cluster"), mapping_in(manifest, "spec")
        return meta["namespace"], database_key(cluster.get("name", ""), spec.get("name", ""))
    if kind in {"MemoryIndex", "Cluster"}:
        return meta["namespace"], meta["name"]
    return meta["namespace"], (meta.get("labels") or {}).get(LABEL_INSTANCE, "")


def database_key(cluster: str, database: str) -> str:
    """Return the name under which a CloudNativePG Database object is cached: `<cluster>/<database>`."""
    return f"{cluster}/{database}"


def entry_of(kind: str, manifest: Manifest) -> Entry | None:
    """Return the cache entry of an object, or None if the object cannot belong to a MemoryIndex."""
    if not _may_belong(kind, manifest):
        return None
    given = manifest["metadata"]
    meta = {name: given[name] for name in _METADATA if name in given}
    meta["labels"] = _selected(given.get("labels"), _LABELS)
    meta["annotations"] = {
        name: value
        for name, value in _selected(given.get("annotations"), _ANNOTATIONS).items()
        if len(value) <= _LONGEST_ANNOTATION or name in _OF_ANY_LENGTH
    }
    fields = ("apiVersion", "kind", *_FIELDS[kind])
    kept = {**{name: manifest[name] for name in fields if name in manifest}, "metadata": meta}
    content = json.dumps(kept, separators=(",", ":")).encode()
    peer = peer_of(manifest) if kind == "MemoryIndex" else None
    return Entry(meta["name"], meta.get("uid", ""), _version(meta), content, _refers_to(kind, manifest), peer)


def peer_of(manifest: Manifest) -> Peer | None:
    """Return what a MemoryIndex says about its table, or None if this operator cannot parse the object."""
    index = parsed(manifest)
    return Peer.of(index) if index else None


def _refers_to(kind: str, manifest: Manifest) -> Owner | None:
    if kind == "Deployment":
        of_sync = manifest["metadata"]["name"] == f"{owner_of(kind, manifest)[1]}-sync"
        url = called_embedder(manifest) if of_sync else None
        return embedder_owner(url) if url else None
    if kind != "MemoryIndex":
        return None
    ref = mapping_in(manifest, "spec", "embedder", "ref")
    return (ref.get("namespace") or manifest["metadata"]["namespace"], ref["name"]) if ref.get("name") else None


def _may_belong(kind: str, manifest: Manifest) -> bool:
    wanted = _CONTROLLERS.get(kind)
    found = controller(manifest) or {}
    return wanted is None or (found.get("apiVersion"), found.get("kind")) in wanted


def _selected(given: dict[str, str] | None, prefixes: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in (given or {}).items() if name.startswith(prefixes)}


def _version(meta: Manifest) -> int:
    version = str(meta.get("resourceVersion", ""))
    return int(version) if version.isdecimal() else 0
