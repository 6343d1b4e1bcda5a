"""Decide whether the server that was reached is the one that is meant.

A connection URI may lead anywhere: to staging, or to a server of somebody else with a database of the same name. So the
server's own system identifier is compared with the one that the Cluster reports. A plain Postgres has nobody who could
report it; there the identifier of the first success is recorded in the status and compared from then on. A server that
lies is not found out by this: against it stands the consent of the Cluster.
"""

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.facts import ClusterFacts
from memory_recall.status import DatabaseFacts

_GRANT = "As a superuser run GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC in the database."


def check_identity(index: MemoryIndex, cluster: ClusterFacts | None, facts: DatabaseFacts) -> Verdict | None:
    """Return why the database must not be worked in, or None where it is the one that is meant."""
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


def identified(index: MemoryIndex, facts: DatabaseFacts) -> MemoryIndex:
    """Return the object with the identifier of the server that `check_identity` has accepted, which its Jobs expect."""
    return index.model_copy(update={"system_identifier": facts.system_identifier or ""})
