"""Build the workers: the Jobs for migration, backfill, index, swap, graph and uninstall, and the sync Deployment."""

from memory_operator.api.conditions import timestamp
from memory_operator.api.spec import ConfigMapKey, Gate, Manifest, MemoryIndex
from memory_operator.resources.columns import column_settings
from memory_operator.resources.common import (
    NEXT_KEY_DIRECTORY,
    Images,
    env,
    fingerprint,
    metadata,
    selector,
    stated_resources,
    with_fingerprint,
)
from memory_operator.resources.embedder import NEXT_COMPONENT, embedder_options, embedder_url
from memory_operator.resources.jobs import (
    JOB_TTL_SECONDS,
    LONG_JOB_SECONDS,
    NEVER_SECONDS,
    SHORT_JOB_SECONDS,
    job_manifest,
)
from memory_operator.resources.worker_pods import ConfiguredEmbedder, pod_template, used_embedders
from memory_recall.embedding.apis import EmbedderApi
from memory_recall.schema.claims_sql import TableClaim

METRICS_PORT = 9090
READINESS_PERIOD_SECONDS = 3
OUTAGE_SECONDS = 30  # of database or embedder, until a sync worker that was ready is not; most failovers are shorter
GRAPH = "graph"  # the component of the Jobs that enable and disable the concept graph
GATE_DIRECTORY = "/var/run/memory-index-gate"
WORKER_RESOURCES = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
# It waits nearly all the time, and a node that is booked by processors holds many of them.
SYNC_RESOURCES = {"requests": {"cpu": "10m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
# Of Jobs whose work happens inside Postgres.
DATABASE_JOB_RESOURCES = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}


def config_fingerprint(index: MemoryIndex, images: Images, component: str) -> str:
    """Return the fingerprint `<work>-<pods>` of a Job's configuration.

    `<work>` is a digest of what the Job does, and `<pods>` is a digest of what its pods are built from. If one of the
    digests changes, the operator starts a new Job without back-off. The new Job replaces an existing Job that cannot
    run.
    """
    spec = index.spec
    parts: dict[str, object] = {
        "table": spec.database.table,
        "database": spec.database.name,
        "secret": index.secret_name,
    }
    if component == "migrate":
        parts |= {
            "object": index.uid,
            "image": images.operator,
            "model": spec.embedding.model,
            "dimensions": spec.embedding.dimensions,
        }
        if spec.database.existing_vectors != "Refuse":
            parts["existing"] = spec.database.existing_vectors
        parts |= {name: value for name, value in column_settings(index).items() if value}
    elif component == "backfill":
        parts |= {"model": spec.embedding.model, "parallelism": spec.backfill.parallelism, "url": embedder_url(index)}
        if _asked_options(index):
            parts["options"] = _asked_options(index)
    elif component == "swap":
        gate = spec.swap.gate.model_dump(mode="json") if spec.swap.gate else None
        parts |= {"model": spec.embedding.model, "dimensions": spec.embedding.dimensions, "gate": gate}
        parts |= {"url": embedder_url(index, NEXT_COMPONENT)}
        if _asked_options(index):
            parts["options"] = _asked_options(index)
    elif component == "index":
        parts |= {"m": spec.index.m, "ef": spec.index.ef_construction}
    elif component == GRAPH:
        parts["wanted"] = _graph_command(index)
    return f"{fingerprint(parts)}-{_pods_fingerprint(index, images, component)}"


def _pods_fingerprint(index: MemoryIndex, images: Images, component: str) -> str:
    used = used_embedders(index, component)
    keys = [used.key.secret_name, used.key.key] if used.key else []
    authorities = [part for one in used.authorities for part in (one.name, one.key)]
    secrets = [index.spec.database.credentials.key, *keys, *authorities]
    given = [section.model_dump(mode="json") for section in (index.spec.backfill, index.spec.embedder.pod_template)]
    verified = [index.database_tls_mode, index.has_database_ca]
    if index.certificate_secret:
        secrets.append(index.certificate_secret)
    return fingerprint([images.operator, images.pull_policy, images.user, secrets, given, verified])


def work_of(config: str) -> str:
    """Return the part `<work>` of a Job's configuration fingerprint, which identifies what the Job does."""
    return config.partition("-")[0]


def migrate_job(
    index: MemoryIndex,
    images: Images,
    sequence: int,
    *,
    active: str | None = None,
    dimensions: int | None = None,
    former: str | None = None,
) -> Manifest:
    """Return the Job that migrates the schema and claims the table: `memory migrate`.

    The Job prepares the schema for the `active` model, or for the specified model if there is no active model. `former`
    is the uid of the MemoryIndex whose claim is replaced, or None. The Job stays after it has ended, because what needs
    a person's decision would be tried again if its Job were deleted.
    """
    existing = index.spec.database.existing_vectors
    decision = [] if existing == "Refuse" else ["--existing-vectors", existing.lower()]
    command = ["memory", "migrate", *decision, *_claim(index), *(["--replaces", former] if former else []), "--json"]
    job = _job(index, images, "migrate", command, sequence, resources=DATABASE_JOB_RESOURCES)
    _add_settings(job, column_settings(index))
    if active and dimensions:
        _set_active_model(job, active, dimensions)
    return job


def index_job(index: MemoryIndex, images: Images, sequence: int) -> Manifest:
    """Return the Job that builds the HNSW index concurrently: `memory index build`."""
    return _job(
        index, images, "index", ["memory", "index", "build", "--json"], sequence, resources=DATABASE_JOB_RESOURCES
    )


def uninstall_job(index: MemoryIndex, images: Images, sequence: int) -> Manifest:
    """Return the Job that drops what the migrations have added to the database."""
    command = ["memory", "migrate", "--to", "base", "--yes", *_claim(index), "--json"]
    return _job(index, images, "uninstall", command, sequence, resources=DATABASE_JOB_RESOURCES)


def graph_job(index: MemoryIndex, images: Images, sequence: int) -> Manifest:
    """Return the Job that enables or disables the concept graph, as the specification says: `memory graph`.

    A graph that is disabled is dropped if the deletion policy is `Delete`; else its tables are kept.
    """
    command = ["memory", "graph", *_graph_command(index), "--json"]
    return _job(index, images, GRAPH, command, sequence, resources=DATABASE_JOB_RESOURCES)


def _graph_command(index: MemoryIndex) -> list[str]:
    if index.spec.graph.enabled:
        return ["enable"]
    return ["disable"] if index.spec.deletion_policy == "Delete" else ["disable", "--keep"]


def backfill_job(index: MemoryIndex, images: Images, sequence: int) -> Manifest:
    """Return the Indexed Job whose pods each embed a share of the pending rows: `memory backfill`."""
    parallelism = index.spec.backfill.parallelism
    resources = stated_resources(index.spec.backfill.resources) or WORKER_RESOURCES
    command = ["memory", "backfill", "--json"]
    job = _job(index, images, "backfill", command, sequence, resources=resources, metrics_port=METRICS_PORT)
    job["spec"] |= {"completionMode": "Indexed", "completions": parallelism, "parallelism": parallelism}
    return job


def swap_job(
    index: MemoryIndex,
    images: Images,
    sequence: int,
    *,
    active: str,
    dimensions: int,
    served_by: ConfiguredEmbedder | None = None,
) -> Manifest:
    """Return the Job that replaces the active model with the specified model: `memory swap start`.

    `served_by` is the embedder of the active model; with None it is the specified one. The Job stays after it has
    ended, because a refused swap would be tried again if its Job were deleted.
    """
    gate = index.spec.swap.gate
    judged = (
        ["--queries", f"{GATE_DIRECTORY}/{_gate_file(gate)}", "--max-drop", f"{gate.max_recall_drop:g}"] if gate else []
    )
    following = ["--url", embedder_url(index, NEXT_COMPONENT), *_next_key(index, served_by), *_asked_options(index)]
    start = ["memory", "swap", "start", "--model", index.spec.embedding.model, *following]
    command = [*start, *(judged or ["--without-gate"]), "--json"]
    limits = stated_resources(index.spec.backfill.resources) or WORKER_RESOURCES
    job = _job(index, images, "swap", command, sequence, resources=limits, active=served_by, metrics_port=METRICS_PORT)
    _set_active_model(job, active, dimensions)
    if gate:
        pod = job["spec"]["template"]["spec"]
        pod["volumes"].append(_gate_volume(gate))
        pod["containers"][0]["volumeMounts"].append({"name": "gate", "mountPath": GATE_DIRECTORY, "readOnly": True})
    return job


def swap_abort_job(index: MemoryIndex, images: Images, sequence: int) -> Manifest:
    """Return the Job that undoes a swap that is no longer wanted: `memory swap abort`."""
    command = ["memory", "swap", "abort", "--yes", "--json"]
    return _job(index, images, "swap-abort", command, sequence, resources=DATABASE_JOB_RESOURCES)


def _claim(index: MemoryIndex) -> list[str]:
    """Return the command option that makes a Job refuse a table that another MemoryIndex has claimed."""
    claim = TableClaim(
        index.system_identifier,
        index.namespace,
        index.name,
        index.uid,
        timestamp(index.created_at),
        kubernetes=index.kubernetes,
        cluster_name=index.cluster_name or "",
        cluster_namespace=index.cluster_namespace,
    )
    return ["--claim", claim.to_json()]


def _set_active_model(job: Manifest, active: str, dimensions: int) -> None:
    """Set the active model in a Job's environment, because the specification names the next model during a swap."""
    _add_settings(job, {"MEMORY_MODEL": active, "MEMORY_DIMENSIONS": str(dimensions)})


def _add_settings(job: Manifest, values: dict[str, str]) -> None:
    """Set variables in a Job's environment; one with the value "" is left out."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    others = [item for item in container["env"] if item["name"] not in values]
    container["env"] = sorted([*others, *env(values)], key=lambda item: item["name"])


def _next_key(index: MemoryIndex, served_by: ConfiguredEmbedder | None) -> list[str]:
    """Return the command options by which each of two embedders gets its own API key, and neither the other's."""
    if served_by is None or served_by.key == index.embedder_key:
        return []
    return ["--api-key-file", f"{NEXT_KEY_DIRECTORY}/key"] if index.embedder_key else ["--without-api-key"]


def _asked_options(index: MemoryIndex) -> list[str]:
    """Return the command options with an embedder's API, model and prefixes there, if it is a third-party one."""
    options = embedder_options(index)
    if options.api is EmbedderApi.MEMORY_INDEX:
        return []
    given = {
        "--api": options.api.value,
        "--served-as": options.served_as,
        "--query-prefix": options.query_prefix,
        "--document-prefix": options.document_prefix,
        "--dimensions": index.spec.embedding.dimensions,
    }
    return [f"{name}={value}" for name, value in given.items() if value is not None]


def _gate_file(gate: Gate) -> str:
    return gate.pvc.path if gate.pvc else "queries.jsonl"


def _gate_volume(gate: Gate) -> Manifest:
    if gate.pvc:
        return {"name": "gate", "persistentVolumeClaim": {"claimName": gate.pvc.claim_name, "readOnly": True}}
    named = gate.config_map or ConfigMapKey(name="")
    return {"name": "gate", "configMap": {"name": named.name, "items": [{"key": named.key, "path": _gate_file(gate)}]}}


def sync_deployment(index: MemoryIndex, images: Images, *, replicas: int) -> Manifest:
    """Return the Deployment that runs `memory sync`, which embeds new rows when Postgres notifies it of them.

    `replicas` is 0 or 1. The fingerprint of the Deployment does not depend on it.
    """
    pod = pod_template(
        index, images, "sync", ["memory", "sync"],
        restart="Always", resources=SYNC_RESOURCES, metrics_port=METRICS_PORT,
    )  # fmt: skip
    container = pod["spec"]["containers"][0]
    # No liveness probe: a thread of its own serves the metrics, and whether the work gets on is judged by its results.
    container["readinessProbe"] = {
        "httpGet": {"path": "/readyz", "port": "metrics"},
        "periodSeconds": READINESS_PERIOD_SECONDS,
        "timeoutSeconds": 5,
        "failureThreshold": OUTAGE_SECONDS // READINESS_PERIOD_SECONDS,
    }
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


def _job(
    index: MemoryIndex,
    images: Images,
    component: str,
    command: list[str],
    sequence: int,
    *,
    resources: Manifest,
    active: ConfiguredEmbedder | None = None,
    metrics_port: int = 0,
) -> Manifest:
    config = config_fingerprint(index, images, component)
    seconds = LONG_JOB_SECONDS if component in {"backfill", "index", "swap"} else SHORT_JOB_SECONDS
    kept = NEVER_SECONDS if component in {"migrate", "swap"} else JOB_TTL_SECONDS
    template = pod_template(
        index, images, component, command,
        restart="Never", resources=resources, active=active, metrics_port=metrics_port,
    )  # fmt: skip
    return job_manifest(index, component, config, sequence, template, seconds=seconds, kept_seconds=kept)
