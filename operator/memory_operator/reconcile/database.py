"""Decide DatabaseReachable: credentials, Cluster, connection, and whether the intended database answers."""

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.authorization.identity import check_identity
from memory_operator.reconcile.facts import ClusterFacts, Observed, Problem
from memory_operator.reconcile.plan import Step, failed_step


def plan_database(index: MemoryIndex, observed: Observed) -> Step:
    """Return the step of DatabaseReachable; its verdict names the first obstacle, or says that the database answers."""
    return _check_configuration(index, observed) or _check_connection(index, observed)


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


def _check_connection(index: MemoryIndex, observed: Observed) -> Step:
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
        # While a Cluster fails over, rolls or starts, that is the cause, and nobody must act.
        phase = cluster.phase or "it has no status yet"
        return Step(Verdict.no(Reason.CLUSTER_NOT_READY, f"{cluster} does not serve yet: {phase}."))
    return failed_step(observed.database, prefix=f"Secret {index.namespace}/{index.secret_name}: ")
