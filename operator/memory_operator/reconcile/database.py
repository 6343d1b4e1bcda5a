"""Decide DatabaseReachable: credentials, Cluster, connection, and whether the intended database answers."""

from datetime import datetime

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.authorization.client_certificate import explained
from memory_operator.reconcile.authorization.identity import check_identity
from memory_operator.reconcile.facts import ClusterFacts, Credentials, Observed, Problem
from memory_operator.reconcile.plan import Step, failed_step

# CloudNativePG's phases (its release 1.30) that end by themselves: a Cluster fails over, rolls or starts.
PASSING_PHASES = frozenset(
    {
        "",
        "Applying configuration",
        "Cluster in healthy state",
        "Cluster upgrade delayed",
        "Creating a new replica",
        "Failing over",
        "Online upgrade in progress",
        "Primary instance is being restarted in-place",
        "Primary instance is being restarted without a switchover",
        "Promoting to primary cluster",
        "Setting up primary",
        "Switchover in progress",
        "Upgrading Postgres major version",
        "Upgrading cluster",
        "Waiting for the instances to become active",
    }
)
# Those that end only once a person has acted. A fault that may be gone at the next attempt, and any phase of a later
# release, is in neither set: it stalls after a grace period.
PHASES_OF_PERSONS = frozenset(
    {
        "Cluster cannot execute instance online upgrade due to missing architecture binary",
        "Cluster cannot proceed to reconciliation due to an unknown plugin being required",
        "Cluster has incomplete or invalid image catalog",
        "Cluster is unrecoverable and needs manual intervention",
        "Invalid cluster definition",
        "Not enough disk space",
        "Waiting for user action",
    }
)


def plan_database(index: MemoryIndex, observed: Observed, now: datetime) -> Step:
    """Return the step of DatabaseReachable; its verdict names the first obstacle, or says that the database answers."""
    return _check_configuration(index, observed) or _check_connection(index, observed, now)


def _check_configuration(index: MemoryIndex, observed: Observed) -> Step | None:
    """Return a step with a problem of the Secret or the Cluster that rules out a connection; None if there is none."""
    if isinstance(observed.credentials, Problem):
        return failed_step(observed.credentials)
    if isinstance(observed.cluster, Problem):
        return failed_step(observed.cluster)
    expected, actual = index.spec.database.name, observed.credentials.database
    if expected != actual:
        where = f"Secret {index.namespace}/{index.secret_name} leads to database {actual}"
        return Step(Verdict.no(Reason.DATABASE_NAME_MISMATCH, f"{where}, spec.database.name is {expected}."))
    if observed.cluster and observed.cluster.replica:
        message = f"{observed.cluster} is a replica cluster, which cannot be written."
        return Step(Verdict.no(Reason.REPLICA_CLUSTER, message))
    if observed.cluster and observed.cluster.hibernated:
        return Step(Verdict.no(Reason.CLUSTER_HIBERNATED, f"{observed.cluster} is hibernated."))
    return None


def _check_connection(index: MemoryIndex, observed: Observed, now: datetime) -> Step:
    cluster = observed.cluster if isinstance(observed.cluster, ClusterFacts) else None
    if observed.database is None:
        return Step(Verdict.unknown(Reason.WAITING, "The database has not been asked yet."))
    if not isinstance(observed.database, Problem):
        wrong = check_identity(index, cluster, observed.database)
        if wrong:
            return Step(wrong)
        where = f" in {cluster}" if cluster else ""
        return Step(Verdict.yes(Reason.REACHABLE, f"Database {index.spec.database.name}{where} answers."))
    if cluster and not cluster.healthy:
        return Step(_not_serving(cluster))
    problem = observed.database
    if isinstance(observed.credentials, Credentials):
        problem = explained(problem, observed.credentials, now)
    return failed_step(problem, prefix=f"Secret {index.namespace}/{index.secret_name}: ")


def _not_serving(cluster: ClusterFacts) -> Verdict:
    """Return the verdict on a database that does not answer, while its Cluster says why it may not."""
    said = ": ".join(part for part in (cluster.phase or "it has no status yet", cluster.phase_reason) if part)
    message = f"{cluster} does not serve: {said.rstrip('.')}."
    if cluster.phase in PASSING_PHASES:
        return Verdict.no(Reason.CLUSTER_NOT_READY, message)
    command = f"kubectl -n {cluster.namespace} describe clusters.postgresql.cnpg.io {cluster.name}"
    known = cluster.phase in PHASES_OF_PERSONS
    reason = Reason.CLUSTER_NEEDS_ACTION if known else Reason.CLUSTER_NOT_HEALTHY
    return Verdict.no(reason, message, f"{reason.remedy} `{command}` says more.")
