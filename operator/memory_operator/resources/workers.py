"""Pods that run the `memory` command: the Jobs for migration, backfill, index and swap, and the sync Deployment.

The connection URI is mounted as a file, never put into the environment: a rotated password is then read at the next
connect, and `kubectl describe` shows nothing. A Job's pod template is immutable, so Jobs are never changed: they carry
the fingerprint of their configuration and a sequence number, and a retry is a new Job.
"""

from memory_operator.api.spec import ConfigMapKey, Gate, Manifest, MemoryIndex
from memory_operator.resources.common import (
    ANNOTATION_SEQUENCE,
    LABEL_CONFIG,
    Images,
    container_security,
    env,
    fingerprint,
    labels,
    metadata,
    pod_security,
    selector,
    with_fingerprint,
)
from memory_operator.resources.embedder import NEXT_COMPONENT, embedder_url

DSN_DIRECTORY = "/var/run/memory-index"
JOB_TTL_SECONDS = 3600  # long enough to be read by a person; what is needed later is read from the database
EXIT_CODES_WITHOUT_RETRY = [2, 3, 4]  # usage, waiting for something, needs a person: the same pod would fail again
METRICS_PORT = 9090
GATE_DIRECTORY = "/var/run/memory-index-gate"
WORKER_RESOURCES = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
# Of Jobs whose work happens inside Postgres.
DATABASE_JOB_RESOURCES = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}


def config_fingerprint(index: MemoryIndex, images: Images, component: str) -> str:
    """Return the fingerprint of what a Job depends on; where it changes, another Job starts without back-off."""
    spec = index.spec
    parts: dict[str, object] = {
        "table": spec.database.table,
        "database": spec.database.name,
        "secret": index.secret_name,
    }
    if component == "migrate":
        parts |= {"image": images.operator, "model": spec.embedding.model, "dimensions": spec.embedding.dimensions}
        if spec.database.existing_vectors != "Refuse":
            parts["existing"] = spec.database.existing_vectors
    elif component == "backfill":
        parts |= {"model": spec.embedding.model, "parallelism": spec.backfill.parallelism, "url": embedder_url(index)}
    elif component == "swap":
        gate = spec.swap.gate.model_dump(mode="json") if spec.swap.gate else None
        parts |= {"model": spec.embedding.model, "dimensions": spec.embedding.dimensions, "gate": gate}
        parts |= {"url": embedder_url(index, NEXT_COMPONENT)}
    elif component == "index":
        parts |= {"m": spec.index.m, "ef": spec.index.ef_construction}
    return fingerprint(parts)


def job_name(index: MemoryIndex, component: str, config: str, sequence: int) -> str:
    """Return `<index>-<component>-<hash>`, which differs for each run."""
    return f"{index.name}-{component}-{fingerprint([config, sequence])[:8]}"


def migrate_job(
    index: MemoryIndex, images: Images, sequence: int, *, active: str | None = None, dimensions: int | None = None
) -> Manifest:
    """Return the Job that migrates the schema, for the active model once there is one: `memory migrate`."""
    existing = index.spec.database.existing_vectors
    decision = [] if existing == "Refuse" else ["--existing-vectors", existing.lower()]
    command = ["memory", "migrate", *decision, "--json"]
    job = _job(index, images, "migrate", command, sequence, resources=DATABASE_JOB_RESOURCES)
    if active and dimensions:
        _set_active_model(job, active, dimensions)
    return job


def index_job(index: MemoryIndex, images: Images, sequence: int) -> Manifest:
    """Return the Job that builds the HNSW index concurrently: `memory index build`."""
    return _job(
        index, images, "index", ["memory", "index", "build", "--json"], sequence, resources=DATABASE_JOB_RESOURCES
    )


def uninstall_job(index: MemoryIndex, images: Images, sequence: int) -> Manifest:
    """Return the Job that drops what the migrations added."""
    command = ["memory", "migrate", "--to", "base", "--yes", "--json"]
    return _job(index, images, "uninstall", command, sequence, resources=DATABASE_JOB_RESOURCES)


def backfill_job(index: MemoryIndex, images: Images, sequence: int) -> Manifest:
    """Return the Indexed Job that embeds the pending rows, each index its share: `memory backfill`."""
    parallelism = index.spec.backfill.parallelism
    resources = index.spec.backfill.resources or WORKER_RESOURCES
    job = _job(index, images, "backfill", ["memory", "backfill", "--json"], sequence, resources=resources)
    job["spec"] |= {"completionMode": "Indexed", "completions": parallelism, "parallelism": parallelism}
    return job


def swap_job(index: MemoryIndex, images: Images, sequence: int, *, active: str, dimensions: int) -> Manifest:
    """Return the Job that swaps the active model for the specified one: `memory swap start`.

    It has no time to live, because a refused swap must stay known.
    """
    gate = index.spec.swap.gate
    judged = (
        ["--queries", f"{GATE_DIRECTORY}/{_gate_file(gate)}", "--max-drop", f"{gate.max_recall_drop:g}"] if gate else []
    )
    url = embedder_url(index, NEXT_COMPONENT)
    start = ["memory", "swap", "start", "--model", index.spec.embedding.model, "--url", url]
    command = [*start, *(judged or ["--without-gate"]), "--json"]
    job = _job(index, images, "swap", command, sequence, resources=index.spec.backfill.resources or WORKER_RESOURCES)
    del job["spec"]["ttlSecondsAfterFinished"]
    _set_active_model(job, active, dimensions)
    if gate:
        pod = job["spec"]["template"]["spec"]
        pod["volumes"].append(_gate_volume(gate))
        pod["containers"][0]["volumeMounts"].append({"name": "gate", "mountPath": GATE_DIRECTORY, "readOnly": True})
    return job


def swap_abort_job(index: MemoryIndex, images: Images, sequence: int) -> Manifest:
    """Return the Job that ends a swap that is no longer wanted: `memory swap abort`."""
    command = ["memory", "swap", "abort", "--yes", "--json"]
    return _job(index, images, "swap-abort", command, sequence, resources=DATABASE_JOB_RESOURCES)


def _set_active_model(job: Manifest, active: str, dimensions: int) -> None:
    """Name the active model in a Job's environment; during a swap the specification names the next one."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    values = {"MEMORY_MODEL": active, "MEMORY_DIMENSIONS": str(dimensions)}
    container["env"] = [
        {**item, "value": values[item["name"]]} if item["name"] in values else item for item in container["env"]
    ]


def _gate_file(gate: Gate) -> str:
    return gate.pvc.path if gate.pvc else "queries.jsonl"


def _gate_volume(gate: Gate) -> Manifest:
    if gate.pvc:
        return {"name": "gate", "persistentVolumeClaim": {"claimName": gate.pvc.claim_name, "readOnly": True}}
    named = gate.config_map or ConfigMapKey(name="")
    return {"name": "gate", "configMap": {"name": named.name, "items": [{"key": named.key, "path": _gate_file(gate)}]}}


def sync_deployment(index: MemoryIndex, images: Images, *, replicas: int) -> Manifest:
    """Return the Deployment that embeds new rows as they are notified: `memory sync`; 0 or 1 replicas.

    Its fingerprint leaves out the number of replicas.
    """
    pod = _pod(index, images, "sync", ["memory", "sync"], restart="Always", resources=WORKER_RESOURCES)
    container = pod["spec"]["containers"][0]
    container["env"] = _settings(index, METRICS_PORT)
    container["ports"] = [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}]
    pod["metadata"]["annotations"] = _scrape(METRICS_PORT)
    manifest = with_fingerprint(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata(index, f"{index.name}-sync", "sync"),
            "spec": {
                "revisionHistoryLimit": 2,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": selector(index, "sync")},
                "template": pod,
            },
        }
    )
    manifest["spec"]["replicas"] = replicas
    return manifest


def _scrape(port: int) -> dict[str, str]:
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port), "prometheus.io/path": "/metrics"}


def _job(
    index: MemoryIndex, images: Images, component: str, command: list[str], sequence: int, *, resources: Manifest
) -> Manifest:
    config = config_fingerprint(index, images, component)
    meta = metadata(index, job_name(index, component, config, sequence), component)
    meta["labels"][LABEL_CONFIG] = config
    meta["annotations"] = {ANNOTATION_SEQUENCE: str(sequence)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {
            "backoffLimit": 6,
            "ttlSecondsAfterFinished": JOB_TTL_SECONDS,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "containerName": "memory",
                            "operator": "In",
                            "values": EXIT_CODES_WITHOUT_RETRY,
                        },
                    },
                ]
            },
            "template": _pod(index, images, component, command, restart="Never", resources=resources),
        },
    }


def _pod(
    index: MemoryIndex, images: Images, component: str, command: list[str], *, restart: str, resources: Manifest
) -> Manifest:
    return {
        "metadata": {"labels": labels(index, component)},
        "spec": {
            "restartPolicy": restart,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(),
            "terminationGracePeriodSeconds": 30,
            "containers": [
                {
                    "name": "memory",
                    "image": images.operator,
                    "imagePullPolicy": images.pull_policy,
                    "command": command,
                    "env": _settings(index, 0),
                    "resources": resources,
                    "securityContext": container_security(),
                    "volumeMounts": [
                        {"name": "dsn", "mountPath": DSN_DIRECTORY, "readOnly": True},
                        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a private emptyDir, the only writable path
                    ],
                }
            ],
            "volumes": [
                {
                    "name": "dsn",
                    "secret": {
                        "secretName": index.secret_name,
                        "defaultMode": 0o440,
                        "items": [{"key": index.spec.database.credentials.key, "path": "dsn"}],
                    },
                },
                {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
            ],
        },
    }


def _settings(index: MemoryIndex, metrics_port: int) -> list[Manifest]:
    spec = index.spec
    values = {
        "MEMORY_DATABASE_URL_FILE": f"{DSN_DIRECTORY}/dsn",
        "MEMORY_TABLE": spec.database.table,
        "MEMORY_MODEL": spec.embedding.model,
        "MEMORY_DIMENSIONS": str(spec.embedding.dimensions),
        "MEMORY_EMBEDDER_URL": "" if index.hosted else embedder_url(index),
        "MEMORY_PROVIDER": spec.embedding.provider.lower() if index.hosted else "",
        "MEMORY_QUERY_EGRESS": spec.embedding.query_egress.lower() if index.hosted else "",
        "MEMORY_INDEX_M": str(spec.index.m),
        "MEMORY_INDEX_EF_CONSTRUCTION": str(spec.index.ef_construction),
        "MEMORY_LOG_FORMAT": "json",
        "MEMORY_METRICS_PORT": str(metrics_port) if metrics_port else "",
        "MEMORY_BACKFILL_PARTITIONS": str(spec.backfill.parallelism),
        "MEMORY_BACKFILL_MAX_ATTEMPTS": str(spec.backfill.max_attempts),
        "MEMORY_BACKFILL_BATCH_SIZE": str(spec.backfill.batch_size or ""),
    }
    key = index.embedder_key
    secret = (
        {"name": "MEMORY_EMBEDDER_API_KEY", "valueFrom": {"secretKeyRef": {"name": key.secret_name, "key": key.key}}}
        if key
        else None
    )
    return [*env(values), *([secret] if secret else [])]
