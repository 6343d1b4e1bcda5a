"""The table of named situations of a MemoryIndex: what is so, and what its status must make of it.

Longer than 300 lines because it is one table.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from memory_bench.operator.situations.kstatus import Kstatus
from memory_operator.api.reasons import Reason
from memory_operator.reconcile.facts import (
    Credentials,
    DeploymentFacts,
    EmbedderLoad,
    JobState,
    PodFacts,
    Problem,
    ServedModel,
)
from memory_recall.postgres.identity_sql import DatabaseIdentity
from memory_recall.status import NO_INDEX, RowCounts
from tests.unit.memory_operator.conftest import (
    CLAIM,
    EMPTY,
    FULL,
    IDENTITY,
    MODEL,
    NEXT_MODEL,
    START,
    VALID_INDEX,
    swap_record,
)
from tests.unit.memory_operator.situations import (
    Situation,
    cluster,
    database_object,
    db,
    job,
    no,
    pod,
    pods,
    problem,
    served,
    yes,
)

CURRENT, IN_PROGRESS, FAILED = Kstatus.CURRENT, Kstatus.IN_PROGRESS, Kstatus.FAILED
LATE = 120.0  # seconds after which what others deliver stalls
SERVING = DeploymentFacts(replicas=1, ready=1, current=True, updated=1, image="emb:1")
LOADING = replace(SERVING, ready=0)
ROLLING = replace(SERVING, current=False)  # the new pod is not ready, the old one is
NEW_POD = PodFacts("mem-embedder-new", "embedder", created_at=START + timedelta(seconds=9))
NO_POD = DeploymentFacts(replicas=0, ready=0, current=True)
FILE, OTHER_FILE = "sha256:" + "a" * 64, "sha256:" + "b" * 64
RECORDED = replace(FULL, active_model=replace(MODEL, digest=FILE, pooling="mean"))
PVC = {"embedding": {"source": {"pvc": {"claimName": "models", "path": "x.gguf", "digest": FILE}}}}
OTHER_PVC = {"embedding": {"source": {"pvc": {"claimName": "models", "path": "y.gguf", "digest": OTHER_FILE}}}}
EXTERNAL = {"embedder": {"external": {"url": "http://e.ml.svc:8080"}}}
GPU = {"embedder": {"gpuLayers": -1}}
ZERO = {"embedder": {"minReplicas": 0, "scaleDownDelaySeconds": 0}}
NEXT = {"embedding": {"model": "bge-small-en-v1.5", "dimensions": 384}}
VOYAGE = {
    "embedding": {
        "provider": "Voyage", "model": "voyage-3.5", "dimensions": 1024, "queryEgress": "Allowed",
        "apiKey": {"secretName": "voyage"},
    }
}  # fmt: skip
HOSTED = replace(FULL, active_model=replace(MODEL, name="voyage-3.5"), embedding_dimensions=1024)
EMPTY_TABLE = replace(EMPTY, extension_version="0.8.7")
FILLED = replace(FULL, rows=RowCounts(total=1000, embedded=900, pending=100))
OTHER_INDEX = replace(VALID_INDEX, ours=True, m=16, ef_construction=64)
FULL_QUEUE = replace(FULL, rows=RowCounts(total=5000, pending=5000), index=NO_INDEX)
NO_RECALL: dict[str, Any] = {"recall": False}
NOTHING: dict[str, Any] = {"recall": False, "embeds": False}
NO_VECTOR: dict[str, Any] = {"embeds": False}
REACHABLE, EXTENSION, SCHEMA = "DatabaseReachable", "ExtensionReady", "SchemaReady"
EMBEDDER, BACKFILLED, INDEX, MODEL = "EmbedderReady", "Backfilled", "IndexReady", "ModelActive"

# A situation takes few lines, so that the table can be read.
# fmt: off
DATABASE = (
    Situation("a Secret that is not there yet", "False", "SecretMissing", IN_PROGRESS,
              problem("credentials", Reason.SECRET_MISSING), **NOTHING, **no(REACHABLE, "SecretMissing")),
    Situation("a Secret that never came", "False", "SecretMissing", FAILED,
              problem("credentials", Reason.SECRET_MISSING), lasts=LATE, **NOTHING),
    Situation("a Secret without the key yet", "False", "SecretKeyMissing", IN_PROGRESS,
              problem("credentials", Reason.SECRET_KEY_MISSING), **NOTHING),
    Situation("a Secret without the key", "False", "SecretKeyMissing", FAILED,
              problem("credentials", Reason.SECRET_KEY_MISSING), lasts=LATE, **NOTHING),
    Situation("a Secret that is no URI", "False", "SecretInvalid", FAILED,
              problem("credentials", Reason.SECRET_INVALID), **NOTHING),
    Situation("a URI of another database", "False", "DatabaseNameMismatch", FAILED,
              {"credentials": Credentials("other")}, **NOTHING),
    Situation("CloudNativePG not installed yet", "False", "CloudNativePGMissing", IN_PROGRESS,
              problem("cluster", Reason.CNPG_MISSING), **NOTHING),
    Situation("CloudNativePG never installed", "False", "CloudNativePGMissing", FAILED,
              problem("cluster", Reason.CNPG_MISSING), lasts=LATE, **NOTHING),
    Situation("a Cluster that is not there yet", "False", "ClusterMissing", IN_PROGRESS,
              problem("cluster", Reason.CLUSTER_MISSING), **NOTHING),
    Situation("a Cluster that never came", "False", "ClusterMissing", FAILED,
              problem("cluster", Reason.CLUSTER_MISSING), lasts=LATE, **NOTHING),
    Situation("a hibernated Cluster", "False", "ClusterHibernated", FAILED,
              {"cluster": cluster(hibernated=True), "database": None}, **NOTHING),
    Situation("a replica cluster", "False", "ReplicaCluster", FAILED,
              {"cluster": cluster(replica=True), "database": None}, **NOTHING, **no(REACHABLE, "ReplicaCluster")),
    Situation("a Cluster that fails over", "False", "ClusterNotReady", IN_PROGRESS,
              {**problem("database", Reason.AUTHENTICATION_FAILED), "cluster": cluster(healthy=False, phase="Switch")},
              lasts=LATE, **NOTHING),
    Situation("a Cluster that rolls and answers", "True", "Ready", CURRENT,
              {"cluster": cluster(healthy=False, phase="Upgrading")}),
    Situation("a database that does not answer", "False", "DatabaseUnreachable", IN_PROGRESS,
              problem("database", Reason.DATABASE_UNREACHABLE), lasts=600, **NOTHING),
    Situation("a password that has just been rotated", "False", "AuthenticationFailed", IN_PROGRESS,
              problem("database", Reason.AUTHENTICATION_FAILED), **NOTHING),
    Situation("a wrong password", "False", "AuthenticationFailed", FAILED,
              problem("database", Reason.AUTHENTICATION_FAILED), lasts=LATE, **NOTHING),
    Situation("a Cluster that does not consent", "False", "ConsentMissing", FAILED,
              problem("cluster", Reason.CONSENT_MISSING)),
    Situation("a Secret that does not consent", "False", "ConsentMissing", FAILED,
              problem("credentials", Reason.CONSENT_MISSING)),
    Situation("another Postgres server", "False", "DatabaseIdentityMismatch", FAILED,
              db(identity=DatabaseIdentity("7400000000000000002", "app")), **NOTHING),
    Situation("another object's table", "False", "TableTaken", FAILED,
              db(identity=IDENTITY, claim=replace(CLAIM, name="other", uid="u-0"))),
    Situation("an image that is not permitted", "False", "NotPermitted", FAILED,
              edit={"embedder": {"image": "unknown.example/embedder:1"}}),
    Situation("a transaction pooler", "False", "PoolerRefused", FAILED, problem("database", Reason.POOLER_REFUSED),
              **NOTHING),
    Situation("a plain Postgres", "True", "Ready", CURRENT, {"cluster": None},
              {"database": {"cluster": None, "extension": {"management": "Observe"}}}),
)
EXTENSION_AND_SCHEMA = (
    Situation("pgvector asked for", "False", "Installing", IN_PROGRESS, {"database": EMPTY}, begun=False, **NOTHING),
    Situation("pgvector dropped by hand", "False", "Installing", IN_PROGRESS,
              db(extension_version=None, index=NO_INDEX), **NOTHING),
    Situation("an image without pgvector", "False", "ExtensionNotAvailable", FAILED,
              {"database": replace(EMPTY, extension_available=None)}, begun=False, **NOTHING),
    Situation("pgvector too old", "False", "ExtensionTooOld", FAILED,
              db(extension_version="0.8.1", extension_available="0.8.1"), **no(EXTENSION, "ExtensionTooOld")),
    Situation("pgvector only observed and missing", "False", "ExtensionMissing", FAILED, {"database": EMPTY},
              {"database": {"extension": {"management": "Observe"}}}, begun=False, **NOTHING),
    Situation("somebody else's Database object", "False", "DatabaseObjectForeign", FAILED,
              {"database": EMPTY, "database_objects": (database_object(labels={}, extensions=()),)}, begun=False,
              **NOTHING),
    Situation("a Database object that has just failed", "False", "DatabaseObjectFailed", IN_PROGRESS,
              {"database": EMPTY, "database_objects": (database_object(applied=False),)}, begun=False, **NOTHING),
    Situation("a Database object that keeps failing", "False", "DatabaseObjectFailed", FAILED,
              {"database": EMPTY, "database_objects": (database_object(applied=False),)}, lasts=LATE, begun=False,
              **NOTHING),
    Situation("a Cluster that CloudNativePG ignores", "False", "ClusterReconciliationDisabled", FAILED,
              {"database": EMPTY, "cluster": cluster(reconciliation_disabled=True)}, begun=False, **NOTHING),
    Situation("an image volume on Postgres 16", "False", "ImageVolumeUnsupported", FAILED, db(server_version="16.4"),
              {"database": {"extension": {"management": "ImageVolume"}}}),
    Situation("an image volume on Postgres 18", "True", "Ready", CURRENT, base=replace(FULL, server_version="18.0"),
              spec={"database": {"extension": {"management": "ImageVolume"}}}),
    Situation("a migration under way", "False", "Migrating", IN_PROGRESS, {"database": EMPTY_TABLE, **job("migrate")},
              begun=False, **NOTHING),
    Situation("a schema behind the operator's", "False", "Migrating", IN_PROGRESS,
              db(schema_revision="0003")),
    Situation("a schema ahead of the operator's", "False", "SchemaAhead", FAILED,
              db(schema_revision="9999")),
    Situation("a trigger that was dropped", "False", "Migrating", IN_PROGRESS,
              db(schema_differences="the trigger is gone"), **NO_VECTOR),
    Situation("a table that cannot be indexed", "False", "SchemaUnsupported", FAILED,
              {"database": EMPTY_TABLE, **job("migrate", JobState.FAILED, Reason.SCHEMA_UNSUPPORTED)}, begun=False,
              **NOTHING),
    Situation("a migration that waits for a lock", "False", "LockNotAvailable", IN_PROGRESS,
              {"database": EMPTY_TABLE, **job("migrate", JobState.FAILED, Reason.LOCK_NOT_AVAILABLE)}, lasts=LATE,
              begun=False, **NOTHING),
    Situation("a migration whose image is not there yet", "False", "ImagePullFailed", IN_PROGRESS,
              {"database": EMPTY_TABLE, **job("migrate"), **pods("migrate", Reason.IMAGE_PULL_FAILED)}, begun=False,
              **NOTHING),
    Situation("a migration whose image is not there", "False", "ImagePullFailed", FAILED,
              {"database": EMPTY_TABLE, **job("migrate"), **pods("migrate", Reason.IMAGE_PULL_FAILED)}, lasts=LATE,
              begun=False, **NOTHING),
    Situation("vectors that nobody recorded the model of", "False", "ExistingVectors", FAILED,
              {"database": EMPTY_TABLE, **job("migrate", JobState.FAILED, Reason.EXISTING_VECTORS)}, begun=False,
              **NOTHING),
)
EMBEDDERS = (
    Situation("an edit that is being rolled out", "False", "RollingOut", IN_PROGRESS,
              edit={"embedder": {"resources": {"limits": {"memory": "3Gi"}}}}, **no(EMBEDDER, "RollingOut")),
    Situation("a roll-out beside the old pod", "False", "RollingOut", IN_PROGRESS, {"embedder": ROLLING}, lasts=600),
    Situation("a roll-out whose pod crash-loops", "False", "CrashLoopBackOff", FAILED,
              {"embedder": ROLLING, **pods("embedder", Reason.CRASH_LOOP)}),
    Situation("a roll-out whose image is not there yet", "False", "ImagePullFailed", IN_PROGRESS,
              {"embedder": ROLLING, **pods("embedder", Reason.IMAGE_PULL_FAILED)}),
    Situation("a roll-out past its deadline", "False", "ProgressDeadlineExceeded", FAILED,
              {"embedder": replace(ROLLING, deadline_exceeded=True)}),
    Situation("the correction of a crash loop, just applied", "False", "RollingOut", IN_PROGRESS,
              {"embedder": LOADING, **pods("embedder", Reason.CRASH_LOOP)}, edit={"embedder": {"image": "emb:2"}},
              **NOTHING),
    Situation("the correction of a crash loop, loading", "False", "RollingOut", IN_PROGRESS,
              {"embedder": replace(ROLLING, ready=0), "pods": (pod("embedder", Reason.CRASH_LOOP), NEW_POD)},
              **NOTHING),
    Situation("the correction of a crash loop, without a pod yet", "False", "RollingOut", IN_PROGRESS,
              {"embedder": replace(ROLLING, ready=0, updated=0), **pods("embedder", Reason.CRASH_LOOP)}, **NOTHING),
    Situation("the gap of a roll-out on one GPU", "False", "RollingOut", IN_PROGRESS,
              {"embedder": replace(ROLLING, ready=0, updated=0)}, GPU, **NOTHING),
    Situation("a model that is being loaded", "False", "Starting", IN_PROGRESS, {"embedder": LOADING}, lasts=600,
              **NOTHING),
    Situation("a pod that no node has room for yet", "False", "Unschedulable", IN_PROGRESS,
              {"embedder": LOADING, **pods("embedder", Reason.UNSCHEDULABLE)}, **NOTHING),
    Situation("a pod that no node has room for", "False", "Unschedulable", FAILED,
              {"embedder": LOADING, **pods("embedder", Reason.UNSCHEDULABLE)}, lasts=LATE, **NOTHING),
    Situation("an image that is not there", "False", "ImagePullFailed", FAILED,
              {"embedder": LOADING, **pods("embedder", Reason.IMAGE_PULL_FAILED)}, lasts=LATE, **NOTHING),
    Situation("an embedder that crash-loops", "False", "CrashLoopBackOff", FAILED,
              {"embedder": LOADING, **pods("embedder", Reason.CRASH_LOOP)}, **NOTHING),
    Situation("a file that is not verified", "False", "ModelNotVerified", FAILED,
              {"embedder": LOADING, **pods("embedder", Reason.MODEL_NOT_VERIFIED)}, **NOTHING),
    Situation("a quota that refuses the pod", "False", "PodRejected", FAILED,
              {"embedder": replace(LOADING, failure="exceeded quota")}, **NOTHING),
    Situation("a GPU that is not used", "False", "GpuNotUsed", FAILED,
              {"embedder": LOADING, "loads": (EmbedderLoad("p", device="cpu"),)}, GPU, **NOTHING),
    Situation("one pod of two that is ready", "True", "Ready", CURRENT, {"embedder": replace(SERVING, replicas=2)},
              {"embedder": {"minReplicas": 2, "maxReplicas": 2}}),
    Situation("a second pod that is started", "True", "Ready", CURRENT,
              edit={"embedder": {"minReplicas": 2, "maxReplicas": 2}}, **yes(EMBEDDER, "Available")),
    Situation("no pods, since nothing is queued", "False", "ScaledToZero", IN_PROGRESS, {"embedder": NO_POD}, ZERO,
              **NO_RECALL, **no(EMBEDDER, "ScaledToZero")),
    Situation("no pods, and a recall has just missed them", "False", "Starting", IN_PROGRESS,
              {"embedder": NO_POD, **db(seconds_since_wanted=0.0)}, ZERO, **NO_RECALL),
    Situation("no pods, and a row waits", "False", "Starting", IN_PROGRESS,
              {"embedder": NO_POD, **db(rows=RowCounts(total=100, embedded=99, pending=1))}, ZERO, **NO_RECALL),
    Situation("no pods, by another scaler", "False", "ScaledToZero", IN_PROGRESS, {"embedder": NO_POD},
              {"embedder": {"scaling": "External"}}, **NOTHING),
    Situation("an image that waits for its turn", "True", "Ready", CURRENT,
              {"embedder": replace(SERVING, image="emb:0"), "rollout_admitted": False}, **yes(EMBEDDER, "Available")),
    Situation("the file that made the vectors", "True", "Ready", CURRENT,
              {"database": RECORDED, **served(digest=FILE, pooling="mean")}),
    Situation("another file of the same name", "False", "ModelMismatch", FAILED,
              {"database": RECORDED, **served(digest=OTHER_FILE)}, **NOTHING, **no(EMBEDDER, "ModelMismatch")),
    Situation("another pooling of the same file", "False", "ModelMismatch", FAILED,
              {"database": RECORDED, **served(digest=FILE, pooling="cls")}, **NOTHING),
    Situation("an embedder that does not say its file", "True", "Ready", CURRENT, {"database": RECORDED, **served()}),
    Situation("an external embedder", "True", "Ready", CURRENT,
              {"database": RECORDED, "external": ServedModel("e", FILE)}, EXTERNAL),
    Situation("an external embedder of another file", "False", "ModelMismatch", FAILED,
              {"database": RECORDED, "external": ServedModel("e", OTHER_FILE)}, EXTERNAL, **NOTHING),
    Situation("an external embedder that is away", "False", "ExternalEmbedderUnreachable", IN_PROGRESS,
              {"external": Problem(Reason.EXTERNAL_UNREACHABLE, "503.")}, EXTERNAL, lasts=LATE, **NOTHING),
    Situation("an external embedder with another key", "False", "EmbedderUnauthorized", FAILED,
              {"external": Problem(Reason.EMBEDDER_UNAUTHORIZED, "401.")}, EXTERNAL, **NOTHING),
    Situation("a hosted provider", "True", "Ready", CURRENT, spec=VOYAGE, base=HOSTED),
    Situation("a hosted provider whose key is not there yet", "False", "SecretMissing", IN_PROGRESS,
              {"external": Problem(Reason.SECRET_MISSING, "voyage.")}, VOYAGE, base=HOSTED, **NOTHING),
)
ROWS = (
    Situation("nothing to do", "True", "Ready", CURRENT),
    Situation("the first backfill", "False", "Backfilling", IN_PROGRESS, {"database": FULL_QUEUE, **job("backfill")},
              **NO_RECALL),
    Situation("many rows at once", "False", "Backfilling", IN_PROGRESS,
              {"database": replace(FULL_QUEUE, index=VALID_INDEX), **job("backfill")}),
    Situation("a backfill that no node has room for yet", "False", "Unschedulable", IN_PROGRESS,
              {"database": FULL_QUEUE, **job("backfill"), **pods("backfill", Reason.UNSCHEDULABLE)}, **NOTHING),
    Situation("a backfill that no node has room for", "False", "Unschedulable", FAILED,
              {"database": FULL_QUEUE, **job("backfill"), **pods("backfill", Reason.UNSCHEDULABLE)}, lasts=LATE,
              **NOTHING),
    Situation("a backfill that the embedder was too busy for", "False", "EmbedderBusy", IN_PROGRESS,
              {"database": FULL_QUEUE, **job("backfill", JobState.FAILED, Reason.EMBEDDER_BUSY)}, **NO_RECALL),
    Situation("a few rows that sync embeds", "True", "Ready", CURRENT, {"database": FILLED, "idle_since": START},
              **yes(BACKFILLED, "Syncing")),
    Situation("rows that sync has left for two minutes", "False", "SyncNotProgressing", IN_PROGRESS,
              {"database": FILLED, "idle_since": START}, lasts=LATE, **NO_VECTOR),
    Situation("sync crash-loops while rows are pending", "False", "CrashLoopBackOff", FAILED,
              {"database": FILLED, "sync": LOADING, **pods("sync", Reason.CRASH_LOOP)}, **NO_VECTOR,
              **no(BACKFILLED, "CrashLoopBackOff")),
    Situation("sync crash-loops while no row is pending", "False", "CrashLoopBackOff", FAILED,
              {"sync": LOADING, **pods("sync", Reason.CRASH_LOOP)}, **NO_VECTOR),
    Situation("sync that no node has room for yet", "False", "Unschedulable", IN_PROGRESS,
              {"database": FILLED, "sync": LOADING, **pods("sync", Reason.UNSCHEDULABLE)}, **NO_VECTOR),
    Situation("sync that no node has room for", "False", "Unschedulable", FAILED,
              {"database": FILLED, "sync": LOADING, **pods("sync", Reason.UNSCHEDULABLE)}, lasts=LATE, **NO_VECTOR),
    Situation("sync that is being rolled out", "False", "RollingOut", IN_PROGRESS,
              {"sync": replace(ROLLING, ready=0, updated=0)}, **NO_VECTOR),
    Situation("sync that was deleted", "False", "Starting", IN_PROGRESS, {"sync": None}, **NO_VECTOR),
    Situation("rows that were given up", "True", "Ready", CURRENT,
              db(rows=RowCounts(total=10, embedded=9, quarantined=1)), **yes(BACKFILLED, "QuarantinedRows")),
    Situation("an index that is being built", "False", "Building", IN_PROGRESS,
              db(index=NO_INDEX) | job("backfill", JobState.COMPLETE), **NO_RECALL),
    Situation("an index of other parameters", "False", "Building", IN_PROGRESS, db(index=OTHER_INDEX),
              **no(INDEX, "Building")),
)
SWAPS_AND_SPECIFICATIONS = (
    Situation("a swap whose embedder is being started", "False", "Swapping", IN_PROGRESS, edit=NEXT,
              **no(MODEL, "Swapping")),
    Situation("a swap whose embedder no node has room for yet", "False", "Unschedulable", IN_PROGRESS,
              {"next_embedder": LOADING, **pods("embedder-next", Reason.UNSCHEDULABLE)}, edit=NEXT),
    Situation("a swap whose embedder no node has room for", "False", "Unschedulable", FAILED,
              {"next_embedder": LOADING, **pods("embedder-next", Reason.UNSCHEDULABLE)}, edit=NEXT, lasts=LATE),
    Situation("a swap that fills", "False", "Swapping", IN_PROGRESS,
              {"next_embedder": SERVING, **db(swap=swap_record("filling"), next_model=NEXT_MODEL)}, edit=NEXT),
    Situation("a swap while the schema is behind", "False", "Migrating", IN_PROGRESS,
              {"next_embedder": SERVING, **db(schema_revision="0003")}, edit=NEXT,
              **no(SCHEMA, "Migrating")),
    Situation("a swap while the active embedder is down", "False", "CrashLoopBackOff", FAILED,
              {"next_embedder": SERVING, "embedder": LOADING, **pods("embedder", Reason.CRASH_LOOP)}, edit=NEXT,
              **NOTHING),
    Situation("a swap while sync is down", "False", "CrashLoopBackOff", FAILED,
              {"next_embedder": SERVING, "sync": LOADING, **pods("sync", Reason.CRASH_LOOP)}, edit=NEXT, **NO_VECTOR),
    Situation("another file in the specification", "False", "ModelMismatch", FAILED, base=RECORDED, spec=PVC,
              edit=OTHER_PVC),
    Situation("the same file at another place", "False", "RollingOut", IN_PROGRESS, base=RECORDED, edit=PVC),
    Situation("a change to a hosted model", "False", "ModelChangeNeedsSwap", FAILED, edit=VOYAGE),
    Situation("an unknown model", "False", "UnknownModel", FAILED, edit={"embedding": {"model": "nobody-knows"}}),
    Situation("dimensions that the model does not yield", "False", "DimensionMismatch", FAILED,
              edit={"embedding": {"dimensions": 1024}}),
    Situation("the concept graph", "False", "InvalidSpec", FAILED, edit={"graph": {"enabled": True}}),
    Situation("suspended when all was done", "True", "Suspended", CURRENT, edit={"suspend": True}),
    Situation("suspended before the pods went to zero", "True", "Suspended", CURRENT, {"embedder": SERVING}, ZERO,
              {"suspend": True}),
    Situation("suspended in the middle", "False", "Suspended", IN_PROGRESS, {"database": FULL_QUEUE},
              edit={"suspend": True}, **NOTHING),
    Situation("suspended while the embedder is down", "False", "Suspended", IN_PROGRESS, {"embedder": LOADING},
              edit={"suspend": True}, **NOTHING),
)
# fmt: on
SITUATIONS = (*DATABASE, *EXTENSION_AND_SCHEMA, *EMBEDDERS, *ROWS, *SWAPS_AND_SPECIFICATIONS)
