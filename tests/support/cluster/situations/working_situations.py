"""Situations that embedders, rows, the vector index, the spec or the operator's permissions cause."""

from devcluster.demo.environment import DIMENSIONS
from tests.support.cluster.manifests import BROKEN_IMAGE, EMBEDDER_URL, Object
from tests.support.cluster.platform import HOSTED_HOST
from tests.support.cluster.situations.situation import (
    COLUMNS,
    NAME,
    Expected,
    Place,
    Situation,
    missing,
    ready,
    refused,
    waiting,
)
from tests.support.gitops.kstatus import Kstatus

_NOT_EMBEDDER = "localhost/memory-operator:dev"  # an image without the embedder's program
_MANY = 4000
_SMALL = {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
_NOWHERE = {"requests": {"cpu": "500"}}  # no node has as much


def _own_embedder(**changes: object) -> Object:
    """Return the field `embedder` of a spec, with the given changes, for an embedder that the operator runs."""
    return {"embedder": {"gpuLayers": 0, "resources": _SMALL, **changes}}


def _quota(place: Place, hard: Object) -> None:
    place.apply("ResourceQuota", {"hard": hard})


def _no_pods(place: Place) -> None:
    _quota(place, {"pods": "0"})


def _no_deployments(place: Place) -> None:
    _quota(place, {"count/deployments.apps": "0"})


def _no_pods_any_more(place: Place) -> None:
    _no_pods(place)
    place.kubectl("delete", "pods", "-l", "app.kubernetes.io/component=sync", "--grace-period=0", "--force")


def _taken_service(place: Place) -> None:
    place.apply("Service", {"ports": [{"port": 80}]}, name=f"{NAME}-embedder")


def _many_rows(place: Place) -> None:
    place.sql(f"INSERT INTO {place.table} (content) SELECT 'note ' || n FROM generate_series(1, {_MANY}) AS n")
    place.reconcile_now()  # the sync worker may embed these rows before the operator looks again by itself


def _pending_rows(place: Place) -> None:
    place.sql(
        f"SET ROLE situations; CREATE TABLE {place.table} {COLUMNS}; "
        f"INSERT INTO {place.table} (content) SELECT 'note ' || n FROM generate_series(1, 20) AS n"
    )


def _locked(place: Place) -> None:
    """Lock a table so that rows can be counted but no column can be added, for 400 seconds.

    This situation has a database of its own, because an index build in a shared database would wait for the transaction
    that holds the lock.
    """
    place.sql(f"CREATE EXTENSION vector; CREATE TABLE memories {COLUMNS}", place.table)
    place.sql(f"ALTER TABLE memories OWNER TO {place.table}", place.table)
    postgres = place.stage.platform.postgres
    statement = "BEGIN; LOCK TABLE memories IN SHARE MODE; SELECT pg_sleep(400)"
    script = f"psql -q -d {place.table} -c '{statement}' >/dev/null 2>&1 &"
    pod = ("exec", f"{postgres.name}-1", "-c", "postgres", "--")
    place.stage.cluster.kubectl("-n", postgres.namespace, *pod, "sh", "-c", script)


def _invalid_index(place: Place) -> None:
    hnsw = "SELECT c.oid FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'hnsw'"
    which = f"indrelid = '{place.table}'::regclass AND indexrelid IN ({hnsw})"
    place.sql(f"SET allow_system_table_mods = on; UPDATE pg_index SET indisvalid = false WHERE {which}")
    place.reconcile_now()


def _finalizer(place: Place) -> None:
    """Delete the MemoryIndex, which a finalizer of the situation keeps from going."""
    patch = '--patch={"metadata":{"finalizers":["memory-bench.example/kept"]}}'
    place.kubectl("patch", "memoryindex", NAME, "--type=merge", patch)
    place.kubectl("delete", "memoryindex", NAME, "--wait=false")


_VOYAGE = {
    "embedding": {
        "model": "voyage-3.5", "dimensions": 1024, "queryEgress": "Allowed",
    },
    "embedder": {
        "external": {"url": f"https://{HOSTED_HOST}", "api": "Voyage", "apiKey": {"secretName": "voyage"}},
    },
}  # fmt: skip


def _hosted(place: Place) -> None:
    place.kubectl("create", "secret", "generic", "voyage", "--from-literal=apiKey=pa-not-a-key")
    place.kubectl("label", "secret", "voyage", "memory-index.dev/allow=api-key")
    place.patch(_VOYAGE)


SITUATIONS = (
    Situation("settled", ready("nothing to do"), settled=True),
    Situation("own-embedder", ready("an embedder that the operator runs"), _own_embedder(), settled=True),
    Situation("room", missing("an embedder that no node has room for", "Unschedulable"),
              _own_embedder(resources=_NOWHERE), filled=True),
    Situation("image", missing("an image that is not there", "ImagePullFailed"), _own_embedder(image=BROKEN_IMAGE),
              filled=True),
    Situation("crash", refused("an embedder that crash-loops", "CrashLoopBackOff"), _own_embedder(image=_NOT_EMBEDDER),
              filled=True),
    Situation("roll-image", (
        Expected("a roll-out beside the old pod, whose image is not there yet", Kstatus.IN_PROGRESS,
                 ("RollingOut", "ImagePullFailed"), serves=True),
        Expected("a roll-out beside the old pod, whose image never comes", Kstatus.FAILED, ("ImagePullFailed",),
                 late=True, serves=True)),
        _own_embedder(), settled=True, disturb=lambda p: p.patch({"embedder": {"image": BROKEN_IMAGE}})),
    Situation("roll-crash", refused("a roll-out beside the old pod, which crash-loops", "CrashLoopBackOff",
                                    serves=True), _own_embedder(), settled=True,
              disturb=lambda p: p.patch({"embedder": {"image": _NOT_EMBEDDER}})),
    Situation("not-permitted", refused("an image that is not permitted", "NotPermitted"),
              _own_embedder(image="unknown.example/embedder:1"), filled=True),
    Situation("quota", refused("a quota that refuses the pods", "PodRejected"), _own_embedder(), prepare=_no_pods,
              filled=True),
    Situation("write", refused("a quota that refuses the Deployment", "WriteRefused"), _own_embedder(),
              prepare=_no_deployments, filled=True),
    Situation("name-taken", refused("a Service of somebody else's with our name", "NameTaken"), _own_embedder(),
              prepare=_taken_service, filled=True),
    Situation("gpu", refused("a GPU that is asked for and not used", "GpuNotUsed"),
              {"embedder": {"gpuLayers": -1, "resources": _SMALL}}, filled=True),
    Situation("zero", (Expected("no pods, since nothing is queued", Kstatus.IN_PROGRESS, ("ScaledToZero",)),),
              _own_embedder(minReplicas=0, scaleDownDelaySeconds=0), filled=True),
    Situation("external", ready("an external embedder"), {"embedder__external__url": EMBEDDER_URL}, settled=True),
    Situation("away", (*waiting("an external embedder that is away", "ExternalEmbedderUnreachable"),
                       Expected("an external embedder that has been away for two minutes", Kstatus.IN_PROGRESS,
                                ("ExternalEmbedderUnreachable",), late=True)),
              settled=True, disturb=lambda p: p.patch(
                  {"embedder": {"external": {"url": f"http://nobody.{p.namespace}.svc:8080"}}})),
    Situation("model", refused("an external embedder of another model", "ModelMismatch"),
              {"embedding": {"model": "bge-small-en-v1.5", "dimensions": DIMENSIONS}}),
    Situation("host", refused("an external embedder that is not permitted", "NotPermitted"),
              {"embedder__external__url": "http://embedder.example:8080"}),
    Situation("voyage", missing("a hosted provider whose key is not there", "SecretMissing"), _VOYAGE),
    Situation("hosted", waiting("a swap to a hosted model", "Swapping", serves=True), settled=True, disturb=_hosted),
    Situation("api-key", missing("an embedder's key that is not there", "SecretMissing"),
              {"embedder__external__apiKey": {"secretName": "nobody"}}),
    Situation("pending", missing("a backfill that no node has room for", "Unschedulable"),
              {"backfill__resources": _NOWHERE}, prepare=_pending_rows),
    Situation("migrating", waiting("a migration that waits for a lock", "Migrating"), prepare=_locked,
              own_database=True),
    Situation("many", waiting("many rows at once", "Backfilling", serves=True), settled=True, disturb=_many_rows),
    Situation("sync", refused("a sync worker that a quota refuses", "PodRejected"), settled=True,
              disturb=_no_pods_any_more),
    Situation("index", (*waiting("an index that is invalid", "Building", "Waiting"),
                        *ready("an index that was built anew", late=True)), settled=True, disturb=_invalid_index),
    # The sync worker is rolled out meanwhile, since it keeps the index as the spec says.
    Situation("parameters", (*waiting("an index of other parameters", "Building", "RollingOut", "Starting",
                                      serves=True),
                             *ready("an index that has other parameters now", late=True)), settled=True,
              disturb=lambda p: p.patch({"index": {"m": 20}})),
    Situation("suspended", ready("suspended when all was done", "Suspended"), settled=True,
              disturb=lambda p: p.patch({"suspend": True})),
    Situation("suspended-early", waiting("suspended before anything was done", "Suspended"), {"suspend": True}),
    Situation("deleting", (Expected("being deleted", Kstatus.TERMINATING, (), ready="any"),), settled=True,
              disturb=_finalizer),
    Situation("swap", waiting("a swap whose embedder is started", "Swapping", "Unschedulable", serves=True),
              _own_embedder(), settled=True,
              disturb=lambda p: p.patch({"embedding": {"model": "bge-small-en-v1.5", "dimensions": DIMENSIONS}})),
)  # fmt: skip
