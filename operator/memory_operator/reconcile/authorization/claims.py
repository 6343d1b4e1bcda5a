"""Decide to which MemoryIndex a table of memories belongs; each table belongs to one.

The claim in the database decides, whichever namespace or Kubernetes cluster the claiming MemoryIndex is in. The
migration Job writes the claim while it holds the migration lock. Therefore two MemoryIndex objects never both work on
one table, even if their operators cannot see both objects. A claim ends when its MemoryIndex is deleted. After that,
only a MemoryIndex that was created later than the deleted one can take the table over. Before the first claim, the
table belongs to the oldest MemoryIndex that names it in the same Cluster, among those whose namespaces that Cluster
allows. Without a Cluster there is nobody to ask for consent, so age decides nothing there: the first claim does.

A MemoryIndex that is missing among the observed objects need not be deleted: its watch may not have listed it yet, or
this operator may be unable to parse it. Therefore a claim has ended only if the Kubernetes API server was asked for its
MemoryIndex and does not have it. The API server of one Kubernetes cluster knows nothing of another. Therefore a claim
from another Kubernetes cluster never ends by itself. The owner of the database ends it by a statement, which the
message shows. Nothing in a MemoryIndex ends a claim: many may read the uid of a claim, and the author of a MemoryIndex
need not be the owner of the database, nor able to read the Secret with its URI.

A claim binds nobody on another server than the one that it names. In a physical copy of a server, such as a rehearsal
of a restore, the claim still names the original. The copy's own MemoryIndex takes the table over there, with its
vectors, and the original's is not touched.
"""

from collections.abc import Collection
from dataclasses import replace

from memory_operator.api.conditions import Verdict, timestamp
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.facts import ClusterFacts, Observed, Peer, Problem
from memory_recall.schema.claims_sql import TableClaim
from memory_recall.status import DatabaseFacts


def is_claimed_by(index: MemoryIndex, facts: DatabaseFacts) -> bool:
    """Return whether the claim in the database names this MemoryIndex."""
    claim = facts.claim
    return claim is not None and claim.uid == index.uid and _is_of_this_server(index, claim, facts)


def check_claim(index: MemoryIndex, observed: Observed) -> Verdict | None:
    """Return a failing verdict if the table belongs to another MemoryIndex than `index`; None if it does not."""
    facts = observed.database_facts
    if facts is None or is_claimed_by(index, facts):
        return None
    claim = facts.claim
    if claim and _is_of_this_server(index, claim, facts) and not _has_ended(index, claim, observed):
        elsewhere = "" if claim.kubernetes == observed.kubernetes else " of another Kubernetes cluster"
        return _taken(index, f"{claim}{elsewhere}", _release(index, claim, observed))
    older = next((peer for peer in observed.peers.objects if _precedes(peer, index, facts, observed.cluster)), None)
    return _taken(index, f"MemoryIndex {older.namespace}/{older.name}", None) if older else None


def holder_to_read(
    index: MemoryIndex,
    facts: DatabaseFacts,
    known: Collection[str],
    namespaces: Collection[str],
    *,
    kubernetes: str = "",
) -> TableClaim | None:
    """Return the claim whose MemoryIndex must be read to learn whether the claim has ended; None if none must be.

    `known` are the uids of the objects that certainly exist, and `namespaces` are those that the operator reads, which
    are all if the collection is empty. `kubernetes` identifies this Kubernetes cluster; an object of another one cannot
    be read. Anybody who may change the database can write a claim, even one without a name.
    """
    claim = facts.claim
    if claim is None or not _is_of_this_server(index, claim, facts) or claim.uid in {index.uid, *known}:
        return None
    readable = claim.kubernetes == kubernetes and (not namespaces or claim.namespace in namespaces)
    return claim if readable and claim.namespace and claim.name else None


def _has_ended(index: MemoryIndex, claim: TableClaim, observed: Observed) -> bool:
    """Return whether the claim has ended, so that `index` may take the table over."""
    return _exists(claim, observed) is False and claim.created_at < timestamp(index.created_at)


def _exists(claim: TableClaim, observed: Observed) -> bool | None:
    """Return whether the MemoryIndex of the claim exists; None if this is not known."""
    peers = observed.peers
    if claim.kubernetes != observed.kubernetes:
        return None
    return True if any(peer.uid == claim.uid for peer in peers.objects) else peers.holder_exists


def _precedes(peer: Peer, index: MemoryIndex, facts: DatabaseFacts, cluster: ClusterFacts | Problem | None) -> bool:
    """Return whether `peer` is older than `index`, may use the same Cluster, and names the same table there."""
    if peer.deleted or (peer.created_at, peer.uid) >= (index.created_at, index.uid):
        return False
    if not isinstance(cluster, ClusterFacts) or (peer.cluster, peer.named_table) != (index.cluster, index.named_table):
        return False
    allowed = peer.namespace in {cluster.namespace, *cluster.allowed_namespaces}
    here = peer.system_identifier in {"", facts.system_identifier}
    return allowed and here and peer.table_schema in {None, facts.table_schema}


def _is_of_this_server(index: MemoryIndex, claim: TableClaim, facts: DatabaseFacts) -> bool:
    """Return whether a claim names the server that was reached; what is not known for certain does not differ."""
    here = replace(
        claim,
        system_identifier=facts.system_identifier or "",
        cluster_name=facts.cluster_name or "",
        cluster_namespace=index.cluster_namespace,
    )
    return claim.on_same_server(here)


def _taken(index: MemoryIndex, owner: str, remedy: str | None) -> Verdict:
    database = index.spec.database
    message = f"Table {database.table} of database {database.name} belongs to {owner}; nothing is done here."
    return Verdict.no(Reason.TABLE_TAKEN, message, remedy)


def _release(index: MemoryIndex, claim: TableClaim, observed: Observed) -> str | None:
    """Return the remedy for a claim that only the owner of the database can end; None for the reason's own remedy.

    Such a claim is that of a MemoryIndex that the operator does not see, or one that may have come with a physical
    copy, because it names a Cluster in another namespace.
    """
    cluster_namespace = index.cluster[0] if index.cluster else ""
    may_be_copy = bool(claim.cluster_namespace) and claim.cluster_namespace != cluster_namespace
    exists = _exists(claim, observed)
    if exists and not may_be_copy:
        return None
    unseen = "The operator does not see that object; if it is gone for good" if not exists else ""
    copied = "if this server is a physical copy of the one that it uses" if may_be_copy else ""
    when = ", or ".join(part for part in (unseen, copied) if part)
    return (
        f"{when[:1].upper()}{when[1:]}, end its claim as the owner of the database: `{claim.ending()}`; the vectors "
        f"stay. Else: {Reason.TABLE_TAKEN.remedy}"
    )
