"""Decide to which MemoryIndex a table of memories belongs; each table belongs to one.

The claim in the database decides, whichever namespace or Kubernetes cluster the claiming MemoryIndex is in. The
migration Job writes the claim while it holds the migration lock. Therefore two MemoryIndex objects never both work on
one table, even if their operators cannot see both objects. A claim ends when its MemoryIndex is deleted. After that,
only a MemoryIndex that was created later than the deleted one can take the table over. Before the first claim, the
table belongs to the oldest MemoryIndex that names it.

A MemoryIndex that is missing among the observed objects need not be deleted: its watch may not have listed it yet, or
this operator may be unable to parse it. Therefore a claim has ended only if the Kubernetes API server was asked for its
MemoryIndex and does not have it. The API server of one Kubernetes cluster knows nothing of another. Therefore a claim
from another Kubernetes cluster never ends by itself, and a person ends it by `memory migrate --replaces`.
"""

from collections.abc import Collection

from memory_operator.api.conditions import Verdict, timestamp
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.facts import Observed
from memory_recall.schema.claims_sql import TableClaim
from memory_recall.status import DatabaseFacts


def is_claimed_by(index: MemoryIndex, facts: DatabaseFacts) -> bool:
    """Return whether the claim in the database names this MemoryIndex."""
    claim = facts.claim
    return claim is not None and (claim.uid, claim.system_identifier) == (index.uid, facts.system_identifier)


def check_claim(index: MemoryIndex, observed: Observed) -> Verdict | None:
    """Return a failing verdict if the table belongs to another MemoryIndex than `index`; None if it does not."""
    facts = observed.database_facts
    if facts is None or is_claimed_by(index, facts):
        return None
    claim = facts.claim
    if claim and claim.system_identifier == facts.system_identifier and not _has_ended(index, claim, observed):
        elsewhere = "" if claim.kubernetes == observed.kubernetes else " of another Kubernetes cluster"
        return _taken(index, f"{claim}{elsewhere}", _release(claim, observed))
    older = next((peer for peer in observed.peers.objects if _precedes(peer, index, facts)), None)
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
    if claim is None or claim.system_identifier != facts.system_identifier or claim.uid in {index.uid, *known}:
        return None
    readable = claim.kubernetes == kubernetes and (not namespaces or claim.namespace in namespaces)
    return claim if readable and claim.namespace and claim.name else None


def _has_ended(index: MemoryIndex, claim: TableClaim, observed: Observed) -> bool:
    """Return whether the claim has ended, so that `index` may take the table over.

    The claim has ended if its MemoryIndex is known to be deleted and was created earlier than `index`.
    """
    return _exists(claim, observed) is False and claim.created_at < timestamp(index.created_at)


def _exists(claim: TableClaim, observed: Observed) -> bool | None:
    """Return whether the MemoryIndex of the claim exists; None if this is not known."""
    peers = observed.peers
    if claim.kubernetes != observed.kubernetes:
        return None
    return True if any(peer.uid == claim.uid for peer in peers.objects) else peers.holder_exists


def _precedes(peer: MemoryIndex, index: MemoryIndex, facts: DatabaseFacts) -> bool:
    """Return whether `peer` is older than `index` and, as far as is known, names the same table."""
    if peer.deleted_at or (peer.created_at, peer.uid) >= (index.created_at, index.uid):
        return False
    mine, other = index.spec.database, peer.spec.database
    if (mine.name, mine.table) != (other.name, other.table):
        return False
    same_server = (
        peer.system_identifier == facts.system_identifier if peer.system_identifier else peer.cluster == index.cluster
    )
    schema = (peer.status.get("database") or {}).get("tableSchema")
    return same_server and schema in {None, facts.table_schema}


def _taken(index: MemoryIndex, owner: str, remedy: str | None) -> Verdict:
    database = index.spec.database
    message = f"Table {database.table} of database {database.name} belongs to {owner}; nothing is done here."
    return Verdict.no(Reason.TABLE_TAKEN, message, remedy)


def _release(claim: TableClaim, observed: Observed) -> str | None:
    """Return the remedy for a claim of a MemoryIndex that the operator does not see; None if it sees it."""
    if _exists(claim, observed):
        return None
    return (
        f"{Reason.TABLE_TAKEN.remedy} The operator does not see that object; if it is gone for good, run "
        f"`memory migrate --replaces {claim.uid}` with this connection URI."
    )
