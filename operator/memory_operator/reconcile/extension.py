"""pgvector: present, and new enough by its own version.

The catalog decides, not CloudNativePG's status: an extension that somebody dropped by hand is not put back by
CloudNativePG until its Database object changes, so the object's pinned version is then toggled to wake it.
"""

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.observed import ClusterFacts, Credentials, DatabaseFacts, DatabaseObject, Observed
from memory_operator.reconcile.plan import Apply
from memory_operator.reconcile.step import Step, waiting
from memory_operator.resources import cnpg
from memory_operator.resources.common import LABEL_MANAGED_BY, MANAGER


def present(index: MemoryIndex, seen: Observed) -> Step:
    """Whether pgvector is there, and what brings it there."""
    facts = seen.facts
    if facts is None:
        return waiting("the database")
    minimum = index.spec.database.extension.minimum_version
    if facts.extension_version and at_least(facts.extension_version, minimum):
        return Step(Verdict.yes(Reason.INSTALLED, f"pgvector {facts.extension_version} is installed."))
    verdict = _hopeless(index, facts, minimum)
    if verdict is not None:
        return Step(verdict)
    if not isinstance(seen.cluster, ClusterFacts):
        return Step(_missing(index, facts, minimum))
    return _through_cnpg(index, seen, seen.cluster, facts)


def at_least(version: str, minimum: str) -> bool:
    """Whether a dotted version is no older than another."""
    return _numbers(version) >= _numbers(minimum)


def _numbers(version: str) -> tuple[int, ...]:
    numbers = tuple(int(part) if part.isdigit() else 0 for part in version.split("."))
    return numbers + (0,) * (3 - len(numbers))


def _hopeless(index: MemoryIndex, facts: DatabaseFacts, minimum: str) -> Verdict | None:
    """A verdict where no Database object could help."""
    database, available = index.spec.database.name, facts.extension_available
    if index.spec.database.extension.management == "Observe":
        return _missing(index, facts, minimum)
    if facts.extension_version is None and available is None:
        return Verdict.no(
            Reason.EXTENSION_NOT_AVAILABLE, f"The Postgres image that serves {database} contains no pgvector."
        )
    if available is None or not at_least(available, minimum):
        have = facts.extension_version or available
        return Verdict.no(
            Reason.EXTENSION_TOO_OLD,
            f"pgvector {have} in {database} is older than {minimum}, and the image offers {available or 'none'}.",
        )
    return None


def _missing(index: MemoryIndex, facts: DatabaseFacts, minimum: str) -> Verdict:
    database = index.spec.database.name
    if facts.extension_version is None:
        return Verdict.no(Reason.EXTENSION_MISSING, f"Database {database} has no extension vector.")
    return Verdict.no(
        Reason.EXTENSION_TOO_OLD,
        f"pgvector {facts.extension_version} in {database} is older than {minimum}.",
        "As a superuser run ALTER EXTENSION vector UPDATE in the database, on an image that has a newer one.",
    )


def _through_cnpg(index: MemoryIndex, seen: Observed, cluster: ClusterFacts, facts: DatabaseFacts) -> Step:
    if cluster.reconciliation_disabled:
        return Step(
            Verdict.no(
                Reason.CLUSTER_RECONCILIATION_DISABLED,
                f"CloudNativePG does not act on Cluster {cluster.namespace}/{cluster.name}, "
                "so pgvector cannot be installed.",
            )
        )
    pinned = facts.extension_available if facts.extension_version else None
    found = next((item for item in seen.database_objects if not item.deleting), None)
    if found is None:
        return _create(index, seen, cluster, facts, pinned)
    if found.labels.get(LABEL_MANAGED_BY) != MANAGER:
        return Step(_foreign(found, pinned))
    return _ours(index, found, cluster, facts, pinned)


def _ours(
    index: MemoryIndex, found: DatabaseObject, cluster: ClusterFacts, facts: DatabaseFacts, pinned: str | None
) -> Step:
    """Our own object: let it ask for the extension, wait, or wake CloudNativePG."""
    entry = cnpg.entry_of(found)
    if entry is None or (pinned and entry.get("version") != pinned):
        manifest = cnpg.adopted(index, found, cluster_name=cluster.name, version=pinned)
        return Step(Verdict.no(Reason.INSTALLING, f"Asked for pgvector through {_called(found)}."), (Apply(manifest),))
    if found.settled:
        toggled = None if entry.get("version") else facts.extension_available
        manifest = cnpg.adopted(index, found, cluster_name=cluster.name, version=toggled)
        message = f"pgvector was removed from the database; asked for it again through {_called(found)}."
        return Step(Verdict.no(Reason.INSTALLING, message), (Apply(manifest),))
    return Step(_carried_out(found))


def _create(
    index: MemoryIndex, seen: Observed, cluster: ClusterFacts, facts: DatabaseFacts, pinned: str | None
) -> Step:
    user = seen.credentials.user if isinstance(seen.credentials, Credentials) else ""
    # The true owner wins: CloudNativePG would give the database to whomever the object names.
    manifest = cnpg.created(index, cluster=(cluster.namespace, cluster.name), owner=facts.owner or user, version=pinned)
    message = f"Asked for pgvector through Database {cluster.namespace}/{manifest['metadata']['name']}."
    return Step(Verdict.no(Reason.INSTALLING, message), (Apply(manifest),))


def _foreign(found: DatabaseObject, pinned: str | None) -> Verdict:
    """Somebody else's object: wait for what it already asks for, else say which lines are missing."""
    entry = cnpg.entry_of(found)
    if entry is None or (pinned and entry.get("version") != pinned) or found.settled:
        lines = cnpg.lines_to_add(pinned)
        message = f"{_called(found)} is managed by someone else and lacks: {lines}"
        return Verdict.no(Reason.DATABASE_OBJECT_FOREIGN, message)
    return _carried_out(found)


def _carried_out(found: DatabaseObject) -> Verdict:
    """What CloudNativePG says of an object that asks for the extension, which is not there yet."""
    if found.applied is False:
        message = f"CloudNativePG could not carry out {_called(found)}: {found.message}"
        return Verdict.no(Reason.DATABASE_OBJECT_FAILED, message)
    return Verdict.no(Reason.INSTALLING, f"CloudNativePG has not yet carried out {_called(found)}.")


def _called(found: DatabaseObject) -> str:
    return f"Database {found.namespace}/{found.name}"
