"""Build the objects of an embedder: Deployment, Service and PodDisruptionBudget.

No pod is killed while it loads its model: the startup probe waits only for the health endpoint, and the readiness probe
waits for the model. In a roll-out with GPUs, an old pod is stopped before a new pod starts, because one GPU cannot hold
two models. If only one GPU pod is allowed, the new pod is not created until the old pod has ended. On CPUs, the new pod
starts first.

If other pods serve during a roll-out, no request is interrupted. An old pod is stopped only after a new pod has been
ready for a while, and the stopped pod serves until no more requests are directed to it.
"""

import re

from memory_operator.api.embedder import COMPONENT, PORT, service_url
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.resources.common import (
    ANNOTATION_STOPPED,
    CERTIFICATE_KEY,
    KEY_DIRECTORY,
    PRIVATE_KEY,
    SERVING_DIRECTORY,
    Images,
    certificate_files,
    container_security,
    labels,
    literal,
    metadata,
    pod_security,
    scraped,
    secret_file,
    selector,
    stated_resources,
    with_fingerprint,
)
from memory_operator.resources.model_fetch import FETCHED_DIRECTORY, FETCHED_FILE, claim_name
from memory_operator.resources.pod_template import completed
from memory_operator.resources.specification import record_of_specification
from memory_recall.embedding.apis import OWN_OPTIONS, PREFIXED_APIS, EmbedderApi, EmbedderOptions
from memory_recall.embedding.profiles import PROFILES, served_digest

PROBE_PORT = 9090  # of health, readiness and metrics, which callers cannot exhaust
MODEL_DIRECTORY = "/models"
DEFAULT_RESOURCES = {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}
MODEL_SIZE_LIMIT = "9Gi"  # of a model that is copied from an image
STARTUP_SECONDS = 1800  # a large model from a slow volume; the probe answers as soon as the process listens
MIN_READY_SECONDS = 15  # for a Service's change of pods to reach every node
SHUTDOWN_DELAY_SECONDS = 10  # for the same; it is also longer than clients keep idle connections
DRAIN_SECONDS = 60  # of an embedder, from the end of the shutdown delay
GPU_LAYERS = "--gpu-layers"  # the option of an embedder that says how much of the model is on the GPU, 0 for nothing
NEXT_COMPONENT = "embedder-next"  # the next model's, while a swap is under way
EMBEDDERS = (COMPONENT, NEXT_COMPONENT)
_NUMBER = re.compile(r"[0-9]{1,9}")


def embedder_url(index: MemoryIndex, component: str = COMPONENT) -> str:
    """Return the URL at which workers and memory servers reach the embedder, or the second embedder of a swap."""
    external = index.spec.embedder.external
    if external:
        return external.url.rstrip("/")
    return service_url(index.namespace, index.name, component, tls=index.serves_tls)


def own_urls(index: MemoryIndex) -> frozenset[str]:
    """Return the URLs that the embedders of the operator have for this object, with TLS and without it."""
    return frozenset(
        service_url(index.namespace, index.name, component, tls=tls)
        for component in (COMPONENT, NEXT_COMPONENT)
        for tls in (False, True)
    )


def own_digest(index: MemoryIndex) -> str | None:
    """Return the digest by which our embedder names the specified file; None if no digest is specified."""
    digest, embedding = index.model_digest, index.spec.embedding
    if digest is None or embedding.model in PROFILES:
        return digest
    prefixes = (embedding.query_prefix or "", embedding.document_prefix or "")
    return served_digest(digest, embedding.model, embedding.pooling, *prefixes)


def recorded_url(index: MemoryIndex) -> str | None:
    """Return the URL that workers record for the specified embedder; None for a third-party embedder."""
    return embedder_url(index) if embedder_options(index).api is EmbedderApi.MEMORY_INDEX else None


def embedder_options(index: MemoryIndex) -> EmbedderOptions:
    """Return by which API, and as which model, the specified embedder is called."""
    external, embedding = index.spec.embedder.external, index.spec.embedding
    if external is None:
        return OWN_OPTIONS
    api = EmbedderApi(external.api)
    if api not in PREFIXED_APIS:
        return EmbedderOptions(api, external.model if api is not EmbedderApi.MEMORY_INDEX else None)
    return EmbedderOptions(api, external.model, embedding.query_prefix, embedding.document_prefix)


def leaves_cluster(index: MemoryIndex) -> bool:
    """Return whether texts leave the cluster when they are sent to the embedder that the specification names."""
    return embedder_options(index).leaves_cluster(embedder_url(index))


def has_several_pods(index: MemoryIndex) -> bool:
    """Return whether the specification allows more than one embedder pod."""
    embedder = index.spec.embedder
    return embedder.scaling == "External" or max(embedder.min_replicas, embedder.max_replicas) > 1


def serves_while_rolling_out(index: MemoryIndex) -> bool:
    """Return whether at least one embedder pod serves during a roll-out.

    A single pod with a GPU is stopped before the next pod starts, because one GPU cannot hold two models.
    """
    return index.spec.embedder.gpu_layers == 0 or has_several_pods(index)


def objects(index: MemoryIndex, images: Images, *, replicas: int, component: str = COMPONENT) -> tuple[Manifest, ...]:
    """Return the Service and the Deployment of an embedder."""
    return service(index, component), deployment(index, images, replicas=replicas, component=component)


def stopped_at(deployment: Manifest) -> int | None:
    """Return the number of pods with which the operator has stopped an embedder; None if it has not stopped it."""
    found = (deployment["metadata"].get("annotations") or {}).get(ANNOTATION_STOPPED) or ""
    return int(found) if _NUMBER.fullmatch(found) else None


def service(index: MemoryIndex, component: str = COMPONENT) -> Manifest:
    """Return the Service that gives the embedder a stable address."""
    return with_fingerprint(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(index, f"{index.name}-{component}", component),
            "spec": {
                "type": "ClusterIP",
                "ipFamilyPolicy": "PreferDualStack",
                "selector": selector(index, component),
                "ports": [{"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}],
            },
        }
    )


def disruption_budget(index: MemoryIndex) -> Manifest:
    """Return the PodDisruptionBudget, which lets the draining of nodes evict only one embedder pod at a time.

    Pods that are not ready serve nobody and may always be evicted, so that broken ones never keep a node from it.
    """
    return with_fingerprint(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(index, f"{index.name}-{COMPONENT}", COMPONENT),
            "spec": {
                "maxUnavailable": 1,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {"matchLabels": selector(index, COMPONENT)},
            },
        }
    )


def deployment(index: MemoryIndex, images: Images, *, replicas: int, component: str = COMPONENT) -> Manifest:
    """Return the Deployment of the embedder's pods.

    Its fingerprint, by which the operator notices changes, leaves out the number of replicas. That number is sent even
    where somebody else decides it, and is then the live one: server-side apply resets a field that its owner no longer
    sends.
    """
    embedder, overlap = index.spec.embedder, serves_while_rolling_out(index)
    annotations = {**scraped(PROBE_PORT), **embedder.pod_annotations}
    record = record_of_specification(index, overlap=overlap)
    template = {
        "metadata": {"labels": labels(index, component), "annotations": annotations},
        "spec": _pod_spec(index, images),
    }
    manifest = with_fingerprint(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**metadata(index, f"{index.name}-{component}", component), "annotations": record},
            "spec": {
                "revisionHistoryLimit": 2,
                "progressDeadlineSeconds": STARTUP_SECONDS,
                **({"minReadySeconds": MIN_READY_SECONDS} if overlap else {}),
                "strategy": _strategy(index),
                "selector": {"matchLabels": selector(index, component)},
                "template": completed(template, index, component),
            },
        }
    )
    manifest["spec"]["replicas"] = replicas
    return manifest


def _strategy(index: MemoryIndex) -> Manifest:
    if not serves_while_rolling_out(index):
        # Server-side apply removes the `rollingUpdate` that another strategy of ours has left there. Kubernetes 1.36
        # refuses a null in its place.
        return {"type": "Recreate"}
    surges = index.spec.embedder.gpu_layers == 0
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0} if surges else {"maxSurge": 0, "maxUnavailable": 1},
    }


def _pod_spec(index: MemoryIndex, images: Images) -> Manifest:
    embedder = index.spec.embedder
    init, volumes, mounts, _ = _model(index, images)
    if index.embedder_key:
        key = index.embedder_key
        volumes = [*volumes, {"name": "key", "secret": secret_file(key.secret_name, key.key, "key")}]
        mounts = [*mounts, {"name": "key", "mountPath": KEY_DIRECTORY, "readOnly": True}]
    if embedder.tls:
        volumes = [*volumes, {"name": "tls", "secret": certificate_files(embedder.tls.secret_name)}]
        mounts = [*mounts, {"name": "tls", "mountPath": SERVING_DIRECTORY, "readOnly": True}]
    optional: Manifest = {
        "initContainers": [{**container, "resources": _processor_and_memory(_resources(index))} for container in init],
        "nodeSelector": dict(embedder.node_selector),
        "tolerations": list(embedder.tolerations),
        "runtimeClassName": embedder.runtime_class_name,
        "priorityClassName": embedder.priority_class_name,
    }
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(images),
        "terminationGracePeriodSeconds": _shutdown_delay(index) + DRAIN_SECONDS,
        "containers": [_container(index, images, mounts)],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}, *volumes],
        **{name: value for name, value in optional.items() if value},
    }


def _container(index: MemoryIndex, images: Images, mounts: list[Manifest]) -> Manifest:
    return {
        "name": "embedder",
        "image": index.spec.embedder.image or images.embedder,
        "imagePullPolicy": images.pull_policy,
        "command": ["memory-embedder", "serve", *(literal(part) for part in _arguments(index, images))],
        "ports": [
            {"name": "http", "containerPort": PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": PROBE_PORT, "protocol": "TCP"},
        ],
        "resources": _resources(index),
        "securityContext": container_security(),
        "startupProbe": {
            "httpGet": {"path": "/healthz", "port": "metrics"},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": STARTUP_SECONDS // 2,
        },
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "metrics"},
            "periodSeconds": 20,
            "timeoutSeconds": 10,
            "failureThreshold": 6,
        },
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "metrics"},
            "periodSeconds": 3,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *mounts],  # noqa: S108 - a private emptyDir
    }


def _shutdown_delay(index: MemoryIndex) -> int:
    """Return the seconds for which a stopped pod continues to serve, or 0 if no other pod could take over."""
    return SHUTDOWN_DELAY_SECONDS if serves_while_rolling_out(index) else 0


def _resources(index: MemoryIndex) -> Manifest:
    return stated_resources(index.spec.embedder.resources) or DEFAULT_RESOURCES


def _processor_and_memory(resources: Manifest) -> Manifest:
    """Return the CPU and memory of an init container, because resource quotas demand both of every container.

    GPUs are left out, because only the main container uses a GPU.
    """
    parts = {
        kind: {name: amount for name, amount in (resources.get(kind) or {}).items() if name in {"cpu", "memory"}}
        for kind in ("requests", "limits")
    }
    return {kind: part for kind, part in parts.items() if part}


def _arguments(index: MemoryIndex, images: Images) -> list[str]:
    embedding, embedder = index.spec.embedding, index.spec.embedder
    *_, path = _model(index, images)
    delay = _shutdown_delay(index)
    options = {
        "--model": embedding.model,
        "--model-file": path,
        "--digest": index.model_digest,
        "--dimensions": str(embedding.dimensions),
        GPU_LAYERS: str(embedder.gpu_layers),
        "--gpu-memory-limit": str(embedder.gpu_memory) if embedder.gpu_memory else None,
        "--port": str(PORT),
        "--probe-port": str(PROBE_PORT),
        "--shutdown-delay-seconds": str(delay) if delay else None,
        "--api-key-file": f"{KEY_DIRECTORY}/key" if index.embedder_key else None,
        "--tls-certificate-file": f"{SERVING_DIRECTORY}/{CERTIFICATE_KEY}" if embedder.tls else None,
        "--tls-key-file": f"{SERVING_DIRECTORY}/{PRIVATE_KEY}" if embedder.tls else None,
        "--pooling": embedding.pooling,
        "--max-tokens": str(embedding.max_tokens) if embedding.max_tokens else None,
        "--query-prefix": embedding.query_prefix,
        "--document-prefix": embedding.document_prefix,
    }
    given = [part for name, value in options.items() if value for part in (name, value)]
    return [*given, *(["--allow-cpu"] if embedder.gpu_layers == 0 else [])]


def _model(index: MemoryIndex, images: Images) -> tuple[list[Manifest], list[Manifest], list[Manifest], str]:
    """Return the init containers, volumes and mounts that give a pod its model, and the path of the file."""
    source = index.spec.embedding.source
    own = f"{MODEL_DIRECTORY}/{index.spec.embedding.model}.gguf"
    if source is None:
        return [], [], [], own
    writable = {"name": "model", "mountPath": FETCHED_DIRECTORY}
    readable = {**writable, "readOnly": True}
    if source.pvc:
        return [], [_claimed(source.pvc.claim_name)], [readable], f"{FETCHED_DIRECTORY}/{source.pvc.path}"
    if source.http:
        return [], [_claimed(claim_name(index, source.http))], [readable], FETCHED_FILE
    if source.image is None:
        return [], [], [], own
    volume: Manifest = {"name": "model", "emptyDir": {"sizeLimit": MODEL_SIZE_LIMIT}}
    copy = {
        "name": "copy-model",
        "image": source.image.reference,
        "imagePullPolicy": images.pull_policy,
        "command": ["cp", literal(source.image.path), FETCHED_FILE],  # the embedder verifies the digest at its start
        "securityContext": container_security(),
        "volumeMounts": [writable],
    }
    return [copy], [volume], [readable], FETCHED_FILE


def _claimed(claim: str) -> Manifest:
    return {"name": "model", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
