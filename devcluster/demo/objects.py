"""The Kubernetes objects that the demo's user creates: namespace, Secret with the DSN, and a toolbox pod.

The toolbox is a pod of the operator image that sleeps. `kubectl exec` runs the `memory` program in it, inside the
cluster's network, with the DSN mounted as a file like in the operator's own workers. The pod satisfies the restricted
Pod Security Standard, so the namespace can enforce it.
"""

from typing import Any

from devcluster.demo.environment import DIMENSIONS, MODEL

Object = dict[str, Any]
TOOLBOX = "toolbox"
SECRET_MOUNT = "/var/run/memory-index"  # noqa: S105 - a directory
SLEEP = "import signal; signal.sigwait({signal.SIGTERM})"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def namespace(name: str) -> Object:
    """Return a Namespace that enforces the restricted Pod Security Standard."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def dsn_secret(namespace: str, name: str, key: str, dsn: str) -> Object:
    """Return a Secret with the DSN under `key`, and with the label that lets a MemoryIndex use the DSN."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {"memory-index.dev/allow": "dsn"}},
        "stringData": {key: dsn},
    }


def toolbox(namespace: str, *, image: str, secret: str, key: str, embedder_url: str, name: str = TOOLBOX) -> Object:
    """Return a Pod in which the `memory` program can be run with `kubectl exec`."""
    environment = {
        "MEMORY_DATABASE_URL_FILE": f"{SECRET_MOUNT}/dsn",
        "MEMORY_MODEL": MODEL,
        "MEMORY_DIMENSIONS": str(DIMENSIONS),
        "MEMORY_EMBEDDER_URL": embedder_url,
        "HOME": "/tmp",  # noqa: S108 - an emptyDir of the pod
    }
    container = {
        "name": TOOLBOX,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", SLEEP],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "dsn", "mountPath": SECRET_MOUNT, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - an emptyDir of the pod
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": TOOLBOX}},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [
                {"name": "dsn", "secret": {"secretName": secret, "items": [{"key": key, "path": "dsn"}]}},
                {"name": "tmp", "emptyDir": {}},
            ],
        },
    }
