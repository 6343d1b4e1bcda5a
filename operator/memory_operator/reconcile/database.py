"""Can the database be used at all: credentials, Cluster, connection."""

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.observed import ClusterFacts, Observed, Problem
from memory_operator.reconcile.step import Step, failed


def reachable(index: MemoryIndex, seen: Observed) -> Step:
    """The first thing in the chain that is missing, or that all of it is there."""
    return _configured(index, seen) or _answering(index, seen)


def _configured(index: MemoryIndex, seen: Observed) -> Step | None:
    """What is wrong before the database is asked, if anything."""
    if isinstance(seen.credentials, Problem):
        return failed(seen.credentials)
    if isinstance(seen.cluster, Problem):
        return failed(seen.cluster)
    wanted, named = index.spec.database.name, seen.credentials.database
    if wanted != named:
        return Step(
            Verdict.no(
                Reason.DATABASE_NAME_MISMATCH,
                f"Secret {index.namespace}/{index.secret_name} connects to database {named!r}, "
                f"spec.database.name is {wanted!r}.",
            )
        )
    if seen.cluster and seen.cluster.hibernated:
        return Step(Verdict.no(Reason.CLUSTER_HIBERNATED, f"Cluster {_called(seen.cluster)} is hibernated."))
    return None


def _answering(index: MemoryIndex, seen: Observed) -> Step:
    if isinstance(seen.database, Problem):
        return _unreachable(seen.database, seen.cluster, f"Secret {index.namespace}/{index.secret_name}: ")
    if seen.database is None:
        return Step(Verdict.unknown(Reason.WAITING, "The database has not been asked yet."))
    where = f" in Cluster {_called(seen.cluster)}" if isinstance(seen.cluster, ClusterFacts) else ""
    return Step(Verdict.yes(Reason.REACHABLE, f"Database {index.spec.database.name}{where} answers."))


def _unreachable(problem: Problem, cluster: ClusterFacts | Problem | None, source: str) -> Step:
    """While a Cluster is failing over, rolling or starting, that is the reason, and nobody must act.

    Otherwise the Secret is named that said where to connect, and as whom.
    """
    if isinstance(cluster, ClusterFacts) and not cluster.healthy:
        phase = cluster.phase or "it has no status yet"
        return Step(Verdict.no(Reason.CLUSTER_NOT_READY, f"Cluster {_called(cluster)} does not serve yet: {phase}."))
    return failed(problem, prefix=source)


def _called(cluster: ClusterFacts) -> str:
    return f"{cluster.namespace}/{cluster.name}"
