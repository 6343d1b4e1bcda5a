"""Decide whether the connection URI leads to the intended Postgres server.

A connection URI may lead to any server that has a database of the same name: a staging server, or one of another team.
Therefore the system identifier that the server returns is compared with the one that the CloudNativePG Cluster reports.
Without a Cluster, the first identifier is recorded in the status of the MemoryIndex, and later identifiers are compared
with it. A server that returns a false identifier is not detected, but the Cluster's consent protects against such a
server.

Physical copies of a server, as every restored backup is one, share its system identifier. CloudNativePG sets
`cluster_name` of each server to the name of the Cluster, so this name must be the Cluster's, or the recorded one
without a Cluster. A copy under the same name in another namespace differs in its address alone: it must be one of those
that CloudNativePG reports for the Cluster's instances. Where no address can be compared, as behind a proxy that
connects from the server's own pod, the namespace of the server's Cluster counts as unknown.

Some hosted servers keep their system identifier from all of their users. There, the owner marks the database, and the
mark is recorded and compared in its place; never against a Cluster, whose servers do tell it.
"""

import hashlib
from ipaddress import IPv4Address, IPv6Address, ip_address

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.facts import ClusterFacts, Problem
from memory_recall.postgres.identity_sql import MARK
from memory_recall.schema.table import quoted
from memory_recall.status import DatabaseFacts

_GRANT = "As a superuser run GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC in the database."
MARK_LENGTH = 20
_RENAMED = (
    "Correct the Secret; if the server's setting cluster_name was changed on purpose, set spec.deletionPolicy to "
    "Retain, delete this MemoryIndex and create it again: all vectors stay."
)


def check_identity(index: MemoryIndex, cluster: ClusterFacts | None, facts: DatabaseFacts) -> Verdict | None:
    """Return why nothing may be done in the database; None if the database is on the intended server."""
    found, where = facts.system_identifier, f"Secret {index.namespace}/{index.secret_name}"
    if found is None:
        return _unidentified(index, cluster, where)
    if cluster and not cluster.system_id and index.system_identifier != found:
        message = f"{cluster} does not report its system identifier yet (CloudNativePG does from 1.26.1 on)."
        return Verdict.no(Reason.CLUSTER_NOT_READY, message)
    expected = (cluster.system_id if cluster else "") or index.system_identifier or found
    if expected != found:
        meant = f"{cluster} is" if cluster else "this MemoryIndex began on"
        message = f"{where} leads to the Postgres server {found}, but {meant} {expected}; nothing was done there."
        return Verdict.no(Reason.DATABASE_IDENTITY_MISMATCH, message)
    return _check_copy(index, cluster, facts, where)


def _unidentified(index: MemoryIndex, cluster: ClusterFacts | None, where: str) -> Verdict:
    """Return the verdict on a server that tells no identifier, in a database without a mark.

    The mark that is offered depends on the MemoryIndex alone, so that the message stays the same. It is offered only
    where no server is recorded: any other database that was marked so would be taken for the recorded one.
    """
    message = f"The role of {where} may not call pg_control_system(), which tells one server from another"
    if cluster or index.system_identifier:
        began = index.system_identifier if not cluster else ""
        message += f", and this MemoryIndex began on {began}." if began else "."
        return Verdict.no(Reason.DATABASE_REJECTED, message, _GRANT)
    mark = hashlib.sha256(index.uid.encode()).hexdigest()[:MARK_LENGTH]
    name = quoted(index.spec.database.name)
    statement = f"COMMENT ON DATABASE {name} IS '{MARK}{mark}'"
    remedy = f"{_GRANT} Where nobody can, as on hosted servers, as the owner of the database run {statement}."
    return Verdict.no(Reason.DATABASE_REJECTED, f"{message}, and the database has no mark.", remedy)


def is_instance(cluster: ClusterFacts, facts: DatabaseFacts) -> bool | None:
    """Return whether the server is an instance of the Cluster, by its address; None if the address does not tell."""
    address = _address(facts.server_address)
    known = [one for one in map(_address, cluster.addresses) if one]
    if address is None or address.is_loopback or address.version not in {one.version for one in known}:
        return None
    return address in known


def identified(
    index: MemoryIndex, cluster: ClusterFacts | Problem | None, facts: DatabaseFacts, kubernetes: str
) -> MemoryIndex:
    """Return the MemoryIndex with the identity of the accepted server, and with its Kubernetes cluster.

    The Jobs of this MemoryIndex refuse to work on any other server.
    """
    certain = isinstance(cluster, ClusterFacts) and is_instance(cluster, facts)
    return index.model_copy(
        update={
            "system_identifier": facts.system_identifier or "",
            "cluster_name": facts.cluster_name,
            "kubernetes": kubernetes,
            "cluster_namespace": cluster.namespace if isinstance(cluster, ClusterFacts) and certain else "",
        }
    )


def _address(text: str | None) -> IPv4Address | IPv6Address | None:
    """Return the IP address in a text, which a server may have made up; None if it is none."""
    try:
        return ip_address(text or "")
    except ValueError:
        return None


def _check_copy(index: MemoryIndex, cluster: ClusterFacts | None, facts: DatabaseFacts, where: str) -> Verdict | None:
    """Return why the server is a physical copy of the intended one, or its original; None if it is the intended one."""
    meant = cluster.name if cluster else index.cluster_name
    correct = f"Put a connection URI of {cluster} into the Secret." if cluster else _RENAMED
    if meant is not None and facts.cluster_name != meant:
        intended = str(cluster) if cluster else f"cluster {meant!r}"
        message = (
            f"{where} leads to the Postgres server of cluster {facts.cluster_name!r}, not to that of {intended}; one "
            "is a physical copy of the other. Nothing was done there."
        )
        return Verdict.no(Reason.DATABASE_IDENTITY_MISMATCH, message, correct)
    if cluster is None or is_instance(cluster, facts) is not False:
        return None
    if not cluster.healthy:
        message = f"{cluster} does not report the address of the server yet that {where} leads to."
        return Verdict.no(Reason.CLUSTER_NOT_READY, message)
    message = (
        f"{where} leads to a Postgres server that is none of the instances of {cluster}; one is a physical copy of the "
        "other, in another namespace. Nothing was done there."
    )
    return Verdict.no(Reason.DATABASE_IDENTITY_MISMATCH, message, correct)
