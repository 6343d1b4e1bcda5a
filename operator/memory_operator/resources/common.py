"""Build what the operator's objects have in common: labels, owner reference, security settings, fingerprint."""

import hashlib
import json
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

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
ANNOTATION_SPECIFICATION = "memory-index.dev/specification"  # which one an embedder's pods were made from
ANNOTATION_SEQUENCE = "memory-index.dev/sequence"
ANNOTATION_INDEX_UID = "memory-index.dev/uid"
ANNOTATION_STOPPED = "memory-index.dev/stopped"  # of a Job that is suspended, an embedder that is scaled to zero
ANNOTATION_CHOICES = "memory-index.dev/choices"  # of pods: what their author chose that takes a permission

KEY_DIRECTORY = "/var/run/memory-index-embedder"  # where embedder and workers find the embedder's API key
SERVING_DIRECTORY = "/var/run/memory-index-embedder-tls"  # where an embedder finds its certificate and key
AUTHORITY_DIRECTORY = "/var/run/memory-index-embedder-ca"  # where workers find the authorities of embedders
NEXT_KEY_DIRECTORY = "/var/run/memory-index-next"  # where a swap's Job finds the API key of the next model's embedder
CLIENT_DIRECTORY = "/var/run/memory-index-client"  # where workers find the certificate and key of the database's role
CERTIFICATE_KEY, PRIVATE_KEY = "tls.crt", "tls.key"  # of a Secret of the type kubernetes.io/tls
OWN_CONTAINERS = frozenset({"embedder", "memory", "fetch"})  # the names of the main containers of our pods
USER_ID = 65532  # the numeric user of both images; a name could not be checked by runAsNonRoot


class Images(BaseModel):
    """The images of the pods that the operator starts."""

    model_config = ConfigDict(frozen=True)

    operator: str = Field(default="localhost/memory-operator:dev", description="Runs the Jobs and the sync Deployment.")
    embedder: str = Field(
        default="localhost/memory-embedder:dev", description="Runs embedders, unless spec.embedder.image is set."
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        default="IfNotPresent", description="The imagePullPolicy of every pod that the operator starts."
    )
    user: Literal["fixed", "assigned"] = Field(
        default="fixed",
        description="Whether pods run as user and group 65532, or as those that the cluster assigns to each pod, as "
        "OpenShift does.",
    )


def labels(index: MemoryIndex, component: str) -> dict[str, str]:
    """Return the labels of an object that belongs to this MemoryIndex."""
    return {
        LABEL_NAME: "memory-index",
        LABEL_INSTANCE: index.name,
        LABEL_COMPONENT: component,
        LABEL_MANAGED_BY: MANAGER,
    }


def selector(index: MemoryIndex, component: str) -> dict[str, str]:
    """Return the labels that select a component's pods."""
    return {LABEL_INSTANCE: index.name, LABEL_COMPONENT: component, LABEL_MANAGED_BY: MANAGER}


def metadata(index: MemoryIndex, name: str, component: str) -> Manifest:
    """Return the metadata of an object in the namespace of its MemoryIndex, with an owner reference."""
    return {
        "name": name,
        "namespace": index.namespace,
        "labels": labels(index, component),
        "ownerReferences": owner_references(index),
    }


def owner_references(index: MemoryIndex) -> list[Manifest]:
    """Return the owner reference by which Kubernetes deletes an object together with its MemoryIndex."""
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "MemoryIndex",
            "name": index.name,
            "uid": index.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def fingerprint(value: object) -> str:
    """Return a short digest of plain data; equal data always have equal digests."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def with_fingerprint(manifest: Manifest) -> Manifest:
    """Add an annotation with a fingerprint of the desired object.

    A live object whose fingerprint differs was built from another desired object, perhaps one with more fields.
    """
    meta = manifest["metadata"]
    annotations = {**meta.get("annotations", {}), ANNOTATION_FINGERPRINT: fingerprint(manifest)}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def container_security() -> Manifest:
    """Return the security context of a container under the restricted Pod Security Standard."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def pod_security(images: Images) -> Manifest:
    """Return the security context of a pod: it does not run as root, and its group can read mounted Secrets.

    A cluster that assigns user and group to each pod refuses others, so they are left out there. Both images work as
    any user, since all of their files can be read by everybody and nothing in them is written.
    """
    fixed = {"runAsUser": USER_ID, "runAsGroup": USER_ID, "fsGroup": USER_ID}
    return {
        "runAsNonRoot": True,
        **(fixed if images.user == "fixed" else {}),
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def own_container(pod: Manifest) -> Manifest:
    """Return the container of a pod's specification that the operator set; admission may have put others before it."""
    containers: list[Manifest] = pod.get("containers") or [{}]
    return next((one for one in containers if one.get("name") in OWN_CONTAINERS), containers[0])


def secret_file(secret: str, key: str, path: str) -> Manifest:
    """Return the source of a volume that holds one key of a Secret as a file, which the pod's group can read."""
    return {"secretName": secret, "defaultMode": 0o440, "items": [{"key": key, "path": path}]}


def certificate_files(secret: str) -> Manifest:
    """Return the source of a volume with a Secret's certificate and key as files, which the pod's group can read."""
    items = [{"key": key, "path": key} for key in (CERTIFICATE_KEY, PRIVATE_KEY)]
    return {"secretName": secret, "defaultMode": 0o440, "items": items}


def scraped(port: int) -> dict[str, str]:
    """Return the annotations of a pod by which Prometheus finds its metrics."""
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port), "prometheus.io/path": "/metrics"}


def env(values: Mapping[str, str]) -> list[Manifest]:
    """Return environment variables sorted by name, without empty values, which Kubernetes would drop."""
    return [{"name": name, "value": literal(value)} for name, value in sorted(values.items()) if value]


def literal(text: str) -> str:
    """Return a text of a command or an environment variable in which Kubernetes expands no reference like `$(NAME)`.

    Values of the specification are checked before such an expansion, which would change them.
    """
    return text.replace("$", "$$")


def plain(text: str) -> str:
    """Return the text from which `literal` made this one."""
    return text.replace("$$", "$")


def stated_resources(resources: Manifest) -> Manifest:
    """Return the lists of requests and limits that have an entry; a patch that removes the last one leaves the list."""
    return {kind: amounts for kind, amounts in resources.items() if amounts}
