"""Situations that are caused by the Secret, the Cluster, the database, pgvector or the schema."""

import json

from devcluster.postgres import database_object
from tests.support.cluster.manifests import Object
from tests.support.cluster.situations.situation import (
    COLUMNS,
    NAME,
    SECRET,
    WRITTEN_CLUSTERS,
    Expected,
    Place,
    Situation,
    missing,
    ready,
    refused,
    waiting,
)
from tests.support.gitops.kstatus import Kstatus

_CLUSTERS = "clusters.postgresql.cnpg.io"
_CLUSTER_NAME = "pg-cluster"  # as create_postgres names it, and as the server calls itself
_OBSERVE = {"database__extension__management": "Observe"}
_PLAIN = {"database__cluster": None, **_OBSERVE}
_NOWHERE = "postgresql://situations:x@nowhere.default.svc:5432/situations"
_CONSENT = "memory-index.dev/allowed-namespaces"


def _without_secret(place: Place) -> None:
    place.kubectl("delete", "secret", SECRET)


def _without_label(place: Place) -> None:
    place.kubectl("label", "secret", SECRET, "memory-index.dev/allow-")


def _wrong_password(place: Place) -> None:
    user, _, rest = place.stage.dsn.partition("@")
    place.write_dsn(f"{user}x@{rest}")


def _without_consent(place: Place) -> None:
    """Remove the situation's namespace from the Cluster's list of allowed namespaces.

    The namespaces of other situations stay in the list.
    """
    postgres = place.stage.platform.postgres
    where = ("-n", postgres.namespace)
    meta = place.stage.cluster.kubectl_json(*where, "get", _CLUSTERS, postgres.name)["metadata"]
    names = [name for name in meta["annotations"][_CONSENT].split(",") if name != place.namespace]
    place.stage.cluster.kubectl(
        *where, "annotate", _CLUSTERS, postgres.name, "--overwrite", f"{_CONSENT}={','.join(names)}"
    )


def _other_server(place: Place) -> None:
    place.write_dsn(place.stage.other.application_dsn())


def _paused(place: Place) -> None:
    other = place.stage.other
    other.allow(place.namespace)
    place.write_dsn(other.application_dsn())
    where = ("-n", other.namespace, "annotate", _CLUSTERS, other.name)
    place.stage.cluster.kubectl(*where, "cnpg.io/reconciliationLoop=disabled", "--overwrite")


def _adopted(place: Place) -> None:
    """Create a Database object that lists pgvector and that the operator does not own."""
    place.stage.cluster.apply(database_object(place.stage.platform.postgres, place.table))


def _foreign(place: Place) -> None:
    """Create a Database object that does not list pgvector and that the operator does not own."""
    made = database_object(place.stage.platform.postgres, place.table)
    del made["spec"]["extensions"]
    place.stage.cluster.apply(made)


def _failing(place: Place) -> None:
    """Create a Database object that CloudNativePG cannot carry out, because its pgvector version does not exist."""
    made = database_object(place.stage.platform.postgres, place.table)
    made["spec"]["extensions"][0]["version"] = "9.9.9"
    place.stage.cluster.apply(made)


def _old_version(place: Place) -> None:
    old = "UPDATE pg_extension SET extversion = '0.8.1' WHERE extname = 'vector'"
    place.sql(f"SET allow_system_table_mods = on; CREATE EXTENSION vector; {old}", place.table)


def _written_cluster(place: Place, spec: Object, status: Object, name: str | None = None) -> None:
    """Create a copy of the Cluster with changes of its spec and status, while CloudNativePG is stopped.

    Its name is the situation's key unless one is given.
    """
    postgres, name = place.stage.platform.postgres, name or place.key
    found = place.stage.cluster.kubectl_json("-n", postgres.namespace, "get", _CLUSTERS, postgres.name)
    meta = {
        "name": name,
        "namespace": WRITTEN_CLUSTERS,
        "annotations": {_CONSENT: place.namespace},
    }
    copied = {"apiVersion": found["apiVersion"], "kind": "Cluster", "metadata": meta, "spec": found["spec"] | spec}
    place.stage.cluster.apply(copied)
    patch = json.dumps({"status": found["status"] | status})
    where = ("-n", WRITTEN_CLUSTERS, "patch", _CLUSTERS, name, "--subresource=status", "--type=merge")
    place.stage.cluster.kubectl(*where, f"--patch={patch}")


def _replica(place: Place) -> None:
    _written_cluster(place, {"replica": {"enabled": True, "source": "elsewhere"}}, {})


def _failing_over(place: Place) -> None:
    place.write_dsn(_NOWHERE)
    _written_cluster(place, {}, {"phase": "Failing over", "readyInstances": 0})


def _rolling(place: Place) -> None:
    _written_cluster(place, {}, {"phase": "Upgrading cluster"}, place.stage.platform.postgres.name)


def _starting(place: Place) -> None:
    place.write_dsn(_NOWHERE)
    _written_cluster(place, {}, {"phase": "Setting up primary", "readyInstances": 0, "currentPrimary": ""})


def _hibernated(place: Place) -> None:
    place.write_dsn(_NOWHERE)
    _written_cluster(place, {}, {"phase": "Cluster is hibernated"})
    hibernation = "cnpg.io/hibernation=on"
    place.stage.cluster.kubectl("-n", WRITTEN_CLUSTERS, "annotate", _CLUSTERS, place.key, hibernation)


def _written(name: str) -> Object:
    """Return a reference to a copied Cluster, which has no certificate authority in its namespace."""
    cluster = {"name": name, "namespace": WRITTEN_CLUSTERS}
    return {"database__cluster": cluster, "database__tls": {"mode": "Require"}}


def _unsupported(place: Place) -> None:
    place.sql(f"CREATE TABLE {place.table} (content text); ALTER TABLE {place.table} OWNER TO situations")


def _existing_vectors(place: Place) -> None:
    place.sql(
        f"SET ROLE situations; CREATE TABLE {place.table} {COLUMNS}; "
        f"ALTER TABLE {place.table} ADD COLUMN embedding halfvec(384); INSERT INTO {place.table} (content, embedding) "
        "SELECT 'note', array_fill(0.1::real, ARRAY[384])::halfvec"
    )


def _ahead(place: Place) -> None:
    place.sql(f"UPDATE memory_index_alembic_version__{place.table} SET version_num = '9999'")


def _without_trigger(place: Place) -> None:
    """Drop a trigger whose loss needs no decision; without the one for updates, vectors may be of another text."""
    place.sql(f"DROP TRIGGER zz_memory_index_insert ON {place.table}")


def _taken(place: Place) -> None:
    """Create a second MemoryIndex in the namespace for the table that the first MemoryIndex has claimed."""
    first = json.loads(place.kubectl("get", "memoryindex", NAME, "-o", "json"))
    second = {key: first[key] for key in ("apiVersion", "kind", "spec")}
    meta = {"name": "second", "namespace": place.namespace}
    place.stage.cluster.apply({**second, "metadata": meta})


SITUATIONS = (
    Situation("secret", missing("a Secret that is not there", "SecretMissing"), disturb=None, prepare=_without_secret),
    Situation("secret-lost", missing("a Secret that was deleted", "SecretMissing"), settled=True,
              disturb=_without_secret),
    Situation("key", missing("a Secret without the key", "SecretKeyMissing"),
              {"database__credentials": {"secretName": SECRET, "key": "other"}}),
    Situation("uri", refused("a Secret that is no URI", "SecretInvalid"), prepare=lambda p: p.write_dsn("no uri")),
    Situation("name", refused("a URI of another database", "DatabaseNameMismatch"), {"database__name": "elsewhere"}),
    Situation("no-cluster", missing("a Cluster that is not there", "ClusterMissing"),
              {"database__cluster": {"name": "nobody", "namespace": "dbaas"}}),
    Situation("no-label", refused("a Secret that does not consent", "ConsentMissing"), prepare=_without_label),
    Situation("label-lost", refused("a Secret that no longer consents", "ConsentMissing", serves=True), settled=True,
              disturb=_without_label),
    Situation("no-consent", refused("a Cluster that no longer consents", "ConsentMissing", serves=True), settled=True,
              disturb=_without_consent),
    Situation("password", missing("a wrong password", "AuthenticationFailed"), prepare=_wrong_password),
    Situation("rotated", missing("a password that was rotated away", "AuthenticationFailed"), settled=True,
              disturb=_wrong_password),
    Situation("server", refused("another Postgres server", "DatabaseIdentityMismatch"),
              {"database__name": "app", "database__tls": {"mode": "Require"}}, prepare=_other_server),
    Situation("authority", missing("a server of another authority than the Cluster's", "ServerNotVerified"),
              {"database__name": "app"}, prepare=_other_server),
    Situation("unlisted", refused("a host that is neither a Service nor listed", "NotPermitted"),
              prepare=lambda p: p.write_dsn("postgresql://situations:x@db.example.com:5432/situations")),
    Situation("nowhere", (*waiting("a database that does not answer", "DatabaseUnreachable"),
                          Expected("a database that has not answered for two minutes", Kstatus.IN_PROGRESS,
                                   ("DatabaseUnreachable",), late=True)), prepare=lambda p: p.write_dsn(_NOWHERE)),
    Situation("paused", refused("a Cluster that CloudNativePG ignores", "ClusterReconciliationDisabled"),
              {"database__name": "app", "database__cluster": {"name": "pg-other", "namespace": "dbaas"}},
              prepare=_paused),
    Situation("replica", refused("a replica cluster", "ReplicaCluster"), _written("replica"), prepare=_replica,
              written=True),
    Situation("failover", waiting("a Cluster that fails over", "ClusterNotReady"), _written("failover"),
              prepare=_failing_over, written=True),
    Situation("rolling", ready("a Cluster that rolls and answers"), _written(_CLUSTER_NAME), prepare=_rolling,
              settled=True, written=True),
    Situation("starting", waiting("a Cluster that is being created", "ClusterNotReady"), _written("starting"),
              prepare=_starting, written=True),
    Situation("hibernated", refused("a hibernated Cluster", "ClusterHibernated"), _written("hibernated"),
              prepare=_hibernated, written=True),
    Situation("plain", ready("a plain Postgres"), _PLAIN, settled=True),
    Situation("plain-without", refused("a plain Postgres without pgvector", "ExtensionMissing"), _PLAIN,
              own_database=True),
    Situation("observed", refused("pgvector only observed and missing", "ExtensionMissing"), _OBSERVE,
              own_database=True),
    Situation("adopted", ready("a Database object of the user's that has our lines", late=True), prepare=_adopted,
              own_database=True),
    Situation("foreign", refused("a Database object of the user's without our lines", "DatabaseObjectForeign"),
              prepare=_foreign, own_database=True),
    Situation("no-object", refused("a database without a Database object", "DatabaseObjectMissing"),
              own_database=True),
    Situation("failing", missing("a Database object that cannot be carried out", "DatabaseObjectFailed"),
              prepare=_failing, own_database=True),
    Situation("too-old", refused("an older pgvector than is asked for", "ExtensionTooOld"),
              {"database__extension__minimumVersion": "0.99.0"}),
    Situation("old-version", refused("an old version in the catalog", "ExtensionTooOld"), _OBSERVE,
              prepare=_old_version, own_database=True),
    Situation("unsupported", refused("a table that cannot be indexed", "SchemaUnsupported"), prepare=_unsupported),
    Situation("vectors", refused("vectors that nobody recorded the model of", "ExistingVectors"),
              prepare=_existing_vectors),
    Situation("ahead", ready("a schema of a later release"), settled=True, disturb=_ahead),
    Situation("trigger", (*waiting("a trigger that was dropped", "Migrating"),
                          *ready("a trigger that was restored", late=True)), settled=True, disturb=_without_trigger),
    Situation("taken", refused("a second object over a table", "TableTaken"), settled=True, disturb=_taken,
              observed="second"),
)  # fmt: skip
