"""Kubernetes objects: one embedder on the CPU, and MemoryIndex objects that share it."""

from typing import Any

from devcluster.demo import objects
from devcluster.demo.environment import DIMENSIONS, MODEL

Object = dict[str, Any]
EMBEDDER_NAMESPACE = "embedder"
EMBEDDER_HOST = f"embedder.{EMBEDDER_NAMESPACE}.svc"
EMBEDDER_URL = f"http://{EMBEDDER_HOST}:8080"
BROKEN_IMAGE = "localhost/broken:1"  # the chart permits it, and no registry has it
API_VERSION = "memory-index.dev/v1alpha1"


def embedder_objects(image: str) -> tuple[Object, ...]:
    """Return the namespace, the Deployment and the Service of one embedder on the CPU."""
    labels = {"app.kubernetes.io/name": EMBEDDER_NAMESPACE}
    meta = {"name": EMBEDDER_NAMESPACE, "namespace": EMBEDDER_NAMESPACE, "labels": labels}
    command = ["memory-embedder", "serve", "--model", MODEL, "--model-file", f"/models/{MODEL}.gguf"]
    command += ["--dimensions", str(DIMENSIONS), "--gpu-layers", "0", "--allow-cpu"]
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": EMBEDDER_NAMESPACE,
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": [*command, "--port", "8080", "--probe-port", "9090"],
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": 9090}, "periodSeconds": 2},
                "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
                "securityContext": objects.RESTRICTED,
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  (an emptyDir of the pod)
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    return (
        objects.namespace(EMBEDDER_NAMESPACE),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": labels, "ports": [{"port": 8080}]},
        },
    )


def external_index(namespace: str, name: str, database: Object, **spec: Any) -> Object:
    """Return a MemoryIndex that uses the embedder that the objects share."""
    return {
        "apiVersion": API_VERSION,
        "kind": "MemoryIndex",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "database": database,
            "embedding": {"model": MODEL, "dimensions": DIMENSIONS},
            "embedder": {"external": {"url": EMBEDDER_URL}},
            **spec,
        },
    }
