"""Decide whether the connection URI leads to the intended Postgres server.

A connection URI may lead to any server that has a database of the same name: a staging server, or one of another team.
Therefore the system identifier that the server returns is compared with the one that the CloudNativePG Cluster reports.
Without a Cluster, the first identifier is recorded in the status of the MemoryIndex, and later identifiers are compared
with it. A server that returns a false identifier is not detected, but the Cluster's consent protects against such a
server.
"""

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.facts import ClusterFacts
from memory_recall.status import DatabaseFacts

_GRANT = "As a superuser run GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC in the database."


def check_identity(index: MemoryIndex, cluster: ClusterFacts | None, facts: DatabaseFacts) -> Verdict | None:
    """Return why nothing may be done in the database; None if the database is on the intended server."""
    found, where = facts.system_identifier, f"Secret {index.namespace}/{index.secret_name}"
    if found is None:
        message = f"The role of {where} may not call pg_control_system(), which tells one server from another."
        return Verdict.no(Reason.DATABASE_REJECTED, message, _GRANT)
    if cluster and not cluster.system_id and index.system_identifier != found:
        message = f"{cluster} does not report its system identifier yet (CloudNativePG does from 1.26.1 on)."
        return Verdict.no(Reason.CLUSTER_NOT_READY, message)
    expected = (cluster.system_id if cluster else "") or index.system_identifier or found
    if expected == found:
        return None
    meant = f"{cluster} is" if cluster else "this MemoryIndex began on"
    message = f"{where} leads to the Postgres server {found}, but {meant} {expected}; nothing was done there."
    return Verdict.no(Reason.DATABASE_IDENTITY_MISMATCH, message)


def identified(index: MemoryIndex, facts: DatabaseFacts, kubernetes: str) -> MemoryIndex:
    """Return the MemoryIndex with the system identifier of the accepted server, and with its Kubernetes cluster.

    The Jobs of this MemoryIndex refuse to work on any other server.
    """
    return index.model_copy(update={"system_identifier": facts.system_identifier or "", "kubernetes": kubernetes})
