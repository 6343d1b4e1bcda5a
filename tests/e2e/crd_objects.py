"""A good MemoryIndex, the parts that make good ones of other kinds, and how one is edited."""

import copy
from collections.abc import Mapping
from typing import Any

REMOVED = object()
DIGEST = "sha256:" + "a1" * 32

GOOD: dict[str, Any] = {
    "apiVersion": "memory-index.dev/v1alpha1",
    "kind": "MemoryIndex",
    "metadata": {"name": "good", "namespace": "default"},
    "spec": {
        # Suspended, so that an operator which happens to run leaves the database of the test alone.
        "suspend": True,
        "database": {
            "cluster": {"name": "pg-cluster", "namespace": "dbaas"},
            "name": "claude_memory",
            "credentials": {"secretName": "creds", "key": "uri"},
        },
        "embedding": {"model": "bge-large-en-v1.5", "dimensions": 1024},
    },
}

CUSTOM: dict[str, Any] = {
    "spec.embedding.model": "custom",
    "spec.embedding.dimensions": 512,
    "spec.embedding.pooling": "mean",
    "spec.embedding.maxTokens": 512,
    "spec.embedding.source": {"pvc": {"claimName": "models", "path": "own.gguf", "digest": DIGEST}},
}
FETCHED: dict[str, Any] = {
    "spec.embedding.source": {
        "http": {
            "url": "https://models.example/m.gguf",
            "sha256": "a1" * 32,
            "volume": {"size": "20Gi", "storageClassName": "nfs", "accessModes": ["ReadWriteMany"]},
        }
    }
}
VOYAGE: dict[str, Any] = {
    "spec.embedding.model": "voyage-3.5",
    "spec.embedding.queryEgress": "Allowed",
    "spec.embedder.external": {
        "url": "https://api.voyageai.com",
        "api": "Voyage",
        "apiKey": {"secretName": "voyage"},
    },
}
LLAMA: dict[str, Any] = {
    "spec.embedding.model": "e5-large-de",
    "spec.embedder.external": {"url": "http://llama.ml.svc:8080", "api": "OpenAI"},
}
PLAIN: dict[str, Any] = {"spec.database.cluster": REMOVED, "spec.database.extension": {"management": "Observe"}}
REFERENCE: dict[str, Any] = {"spec.embedder": {"ref": {"name": "shared", "namespace": "ai"}}}
EXTERNAL: dict[str, Any] = {"spec.embedder": {"external": {"url": "http://embedder.ml.svc:8080"}}}
CALLERS: dict[str, Any] = {
    "spec.embedder.apiKey": {"secretName": "embedder-key"},
    "spec.embedder.gpuMemory": 1500,
    "spec.embedder.allowFrom": [
        {"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["api"]}]}},
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "agents"}}, "podSelector": {}},
    ],
}
_TERM = {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}
_PODS = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "api"}}}
_REQUIRED, _PREFERRED = (f"{strength}DuringSchedulingIgnoredDuringExecution" for strength in ("required", "preferred"))
POD_TEMPLATE: dict[str, Any] = {
    "spec.embedder.podTemplate": {
        "labels": {"team.example/name": "memory"},
        "annotations": {"linkerd.io/inject": "disabled"},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "memory", "effect": "NoSchedule"}],
        "priorityClassName": "home",
        "affinity": {
            "nodeAffinity": {
                _REQUIRED: {"nodeSelectorTerms": [_TERM]},
                _PREFERRED: [{"weight": 50, "preference": _TERM}],
            },
            "podAffinity": {_PREFERRED: [{"weight": 1, "podAffinityTerm": _PODS}]},
            "podAntiAffinity": {_REQUIRED: [_PODS]},
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "imagePullSecrets": [{"name": "registry"}],
        "env": [{"name": "OMP_WAIT_POLICY", "value": "PASSIVE"}],
    }
}


def edited(edits: Mapping[str, Any], base: Mapping[str, Any] = GOOD) -> dict[str, Any]:
    """The base object with each dotted path set (or removed)."""
    result: dict[str, Any] = copy.deepcopy(dict(base))
    for path, value in edits.items():
        *parents, last = path.split(".")
        node = result
        for parent in parents:
            node = node.setdefault(parent, {})
        if value is REMOVED:
            node.pop(last, None)
        else:
            node[last] = copy.deepcopy(value)
    return result
