"""Build the pods of workers, which run the `memory` command.

The connection URI and the embedder's API key are mounted as files and never put into the environment. Therefore a
rotated value is used at the next connection or request, and `kubectl describe` does not show the value.
"""

from memory_operator.api.embedder import SecretKey
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.resources.common import (
    KEY_DIRECTORY,
    Images,
    container_security,
    env,
    labels,
    pod_security,
    secret_file,
)
from memory_operator.resources.embedder import embedder_url
from memory_operator.resources.pod_template import completed
from memory_recall.postgres.identity_sql import DatabaseIdentity

DSN_DIRECTORY = "/var/run/memory-index"
_ASKING = frozenset({"backfill", "sync", "swap"})  # the components that send texts to an embedder


def pod_template(
    index: MemoryIndex,
    images: Images,
    component: str,
    command: list[str],
    *,
    restart: str,
    resources: Manifest,
    metrics_port: int = 0,
) -> Manifest:
    """Return the pod template of a worker that runs one command.

    With `metrics_port` 0, the worker serves no metrics.
    """
    key = embedder_key_of(index, component)
    files = _secret_files(index, key)
    template: Manifest = {
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
                    "env": settings(index, metrics_port, key=key),
                    "resources": resources,
                    "securityContext": container_security(),
                    "volumeMounts": [
                        *({"name": name, "mountPath": path, "readOnly": True} for name, (path, _) in files.items()),
                        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a private emptyDir, the only writable path
                    ],
                }
            ],
            "volumes": [
                *({"name": name, "secret": secret} for name, (_, secret) in files.items()),
                {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
            ],
        },
    }
    return completed(template, index, component)


def embedder_key_of(index: MemoryIndex, component: str) -> SecretKey | None:
    """Return the embedder's API key if the component sends texts to an embedder.

    No other component holds it, or waits for a Secret that is not there.
    """
    return index.embedder_key if component in _ASKING else None


def _secret_files(index: MemoryIndex, key: SecretKey | None) -> dict[str, tuple[str, Manifest]]:
    """Return, by volume name, the mount path and the source of each volume that holds one key of a Secret as a file."""
    dsn = secret_file(index.secret_name, index.spec.database.credentials.key, "dsn")
    return {
        "dsn": (DSN_DIRECTORY, dsn),
        **({"key": (KEY_DIRECTORY, secret_file(key.secret_name, key.key, "key"))} if key else {}),
    }


def settings(index: MemoryIndex, metrics_port: int, *, key: SecretKey | None) -> list[Manifest]:
    """Return the environment variables of a worker. With `metrics_port` 0, the worker serves no metrics."""
    spec = index.spec
    values = {
        "MEMORY_DATABASE_URL_FILE": f"{DSN_DIRECTORY}/dsn",
        "MEMORY_DATABASE_IDENTITY": str(DatabaseIdentity(index.system_identifier, spec.database.name)),
        "MEMORY_TABLE": spec.database.table,
        "MEMORY_MODEL": spec.embedding.model,
        "MEMORY_DIMENSIONS": str(spec.embedding.dimensions),
        "MEMORY_EMBEDDER_URL": "" if index.hosted else embedder_url(index),
        "MEMORY_EMBEDDER_API_KEY_FILE": f"{KEY_DIRECTORY}/key" if key else "",
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
    return env(values)
