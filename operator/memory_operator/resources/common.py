"""What all our objects share: labels, the owner reference, and the fingerprint that tells whether an object is as
wanted.
"""

import hashlib
import json
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from memory_operator.api.spec import API_VERSION, Manifest, MemoryIndex

MANAGER = "memory-operator"
LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_INDEX_NAME = "memory-index.dev/name"
LABEL_INDEX_NAMESPACE = "memory-index.dev/namespace"
LABEL_CONFIG = "memory-index.dev/config"
ANNOTATION_FINGERPRINT = "memory-index.dev/fingerprint"
ANNOTATION_SEQUENCE = "memory-index.dev/sequence"

USER_ID = 65532  # the numeric user of both images; a name could not be checked by runAsNonRoot


class Images(BaseModel):
    """Which images the objects run."""

    model_config = ConfigDict(frozen=True)

    operator: str
    embedder: str
    pull_policy: str = "IfNotPresent"


def labels(index: MemoryIndex, component: str) -> dict[str, str]:
    """The labels of an object that belongs to this index."""
    return {
        LABEL_NAME: "memory-index",
        LABEL_INSTANCE: index.name,
        LABEL_COMPONENT: component,
        LABEL_MANAGED_BY: MANAGER,
    }


def selector(index: MemoryIndex, component: str) -> dict[str, str]:
    """The labels that select a component's pods."""
    return {LABEL_INSTANCE: index.name, LABEL_COMPONENT: component, LABEL_MANAGED_BY: MANAGER}


def metadata(index: MemoryIndex, name: str, component: str) -> Manifest:
    """Metadata of a child in the index's own namespace: collected with its owner."""
    return {
        "name": name,
        "namespace": index.namespace,
        "labels": labels(index, component),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "MemoryIndex",
                "name": index.name,
                "uid": index.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def fingerprint(value: object) -> str:
    """A short, stable digest of plain data."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def with_fingerprint(manifest: Manifest) -> Manifest:
    """The object with the fingerprint of its wanted state, by which a dropped field is noticed."""
    meta = manifest["metadata"]
    annotations = {**meta.get("annotations", {}), ANNOTATION_FINGERPRINT: fingerprint(manifest)}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def container_security() -> Manifest:
    """The strictest settings that Pod Security knows."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def pod_security() -> Manifest:
    """Non-root, with files of mounted Secrets readable by our group."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def env(values: Mapping[str, str]) -> list[Manifest]:
    """Environment variables in a stable order; empty ones are left out, since the API server would drop the value."""
    return [{"name": name, "value": value} for name, value in sorted(values.items()) if value]
