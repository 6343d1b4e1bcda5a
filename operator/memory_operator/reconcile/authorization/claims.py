"""Decide whose the table is: one table belongs to one MemoryIndex.

The claim in the database decides, wherever the claiming object is: it is written by the migration, under its lock. A
claim ends with its object. It is then taken over by an object that was created later, be it the same one applied again
or another; among two objects that do not see one another, this lets the later one work and never both. Before the first
claim the oldest of the objects that name the table keeps it.
"""

from memory_operator.api.conditions import Verdict, timestamp
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.facts import Observed, Peers
from memory_recall.schema.claims_sql import TableClaim
from memory_recall.status import DatabaseFacts


def is_claimed_by(index: MemoryIndex, facts: DatabaseFacts) -> bool:
    """Return whether the table is recorded as this object's."""
    claim = facts.claim
    return claim is not None and (claim.uid, claim.system_identifier) == (index.uid, facts.system_identifier)


def check_claim(index: MemoryIndex, observed: Observed) -> Verdict | None:
    """Return that the table belongs to another object, or None where it is this one's or may become that."""
    facts = observed.database_facts
    if facts is None or is_claimed_by(index, facts):
        return None
    claim = facts.claim
    if claim and claim.system_identifier == facts.system_identifier and not _has_ended(index, claim, observed.peers):
        return _taken(index, str(claim), _release(claim, observed.peers))
    older = next((peer for peer in observed.peers.objects if _precedes(peer, index, facts)), None)
    return _taken(index, f"MemoryIndex {older.namespace}/{older.name}", None) if older else None


def _has_ended(index: MemoryIndex, claim: TableClaim, peers: Peers) -> bool:
    """Return whether the claim's object is gone, and this one may follow it."""
    readable = not peers.namespaces or claim.namespace in peers.namespaces
    gone = readable and all(peer.uid != claim.uid for peer in peers.objects)
    return gone and claim.created_at < timestamp(index.created_at)


def _precedes(peer: MemoryIndex, index: MemoryIndex, facts: DatabaseFacts) -> bool:
    """Return whether an older object names the same table, as far as is known of it."""
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


def _release(claim: TableClaim, peers: Peers) -> str | None:
    """Return how a claim is ended whose object the operator does not see."""
    if any(peer.uid == claim.uid for peer in peers.objects):
        return None
    return (
        f"{Reason.TABLE_TAKEN.remedy} The operator does not see that object; if it is gone for good, run "
        f"`memory migrate --replaces {claim.uid}` with this connection URI."
    )
