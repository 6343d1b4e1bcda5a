"""Decide ExtensionReady: pgvector is installed, and new enough by its own version.

The catalog decides, not CloudNativePG's status. If somebody drops the extension by hand, CloudNativePG installs it
again only after its Database object has changed. Therefore the operator changes the object, by setting or removing the
pinned version of the extension.

A new Database object needs an owner. The Cluster names only the owner of the database that it was created with. For any
other database a person must name the owner, so the message quotes a Database object to complete and apply.
"""

import re

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.facts import ApplicationDatabase, ClusterFacts, Observed
from memory_operator.reconcile.plan import Apply, Step, waiting_for
from memory_operator.resources import cnpg
from memory_recall.status import DatabaseFacts

_LONGEST_VERSION = 64
_NUMBER = re.compile(r"[0-9]{1,9}")


def plan_extension(index: MemoryIndex, observed: Observed) -> Step:
    """Return the verdict on pgvector, with the write that makes CloudNativePG install it if one is needed."""
    facts = observed.database_facts
    if facts is None:
        return waiting_for("the database")
    minimum = index.spec.database.extension.minimum_version
    if facts.extension_version and at_least(facts.extension_version, minimum):
        return Step(Verdict.yes(Reason.INSTALLED, f"pgvector {facts.extension_version} is installed."))
    verdict = _unrecoverable(index, facts, minimum)
    if verdict is not None:
        return Step(verdict)
    if not isinstance(observed.cluster, ClusterFacts):
        return Step(_missing(index, facts, minimum))
    return _install_through_cnpg(index, observed, observed.cluster, facts)


def at_least(version: str, minimum: str) -> bool:
    """Return whether a dotted version is at least `minimum`; a part that is no number counts as 0."""
    return _numbers(version) >= _numbers(minimum)


def _numbers(version: str) -> tuple[int, ...]:
    parts = version[:_LONGEST_VERSION].split(".")
    numbers = tuple(int(part) if _NUMBER.fullmatch(part) else 0 for part in parts)
    return numbers + (0,) * (3 - len(numbers))


def _unrecoverable(index: MemoryIndex, facts: DatabaseFacts, minimum: str) -> Verdict | None:
    """Return a failing verdict if CloudNativePG cannot install a new enough pgvector; None if it can."""
    database, available = index.spec.database.name, facts.extension_available
    if index.spec.database.extension.management == "Observe":
        return _missing(index, facts, minimum)
    if facts.extension_version is None and available is None:
        return Verdict.no(
            Reason.EXTENSION_NOT_AVAILABLE,
            f"The Postgres image that serves {database} contains no pgvector. A Cluster of Postgres 18 or later can "
            f"also mount an image of pgvector by itself: {cnpg.mounted_image_lines(minimum)}",
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


def _install_through_cnpg(index: MemoryIndex, observed: Observed, cluster: ClusterFacts, facts: DatabaseFacts) -> Step:
    if cluster.reconciliation_disabled:
        message = f"CloudNativePG does not act on {cluster}, so pgvector cannot be installed."
        return Step(Verdict.no(Reason.CLUSTER_RECONCILIATION_DISABLED, message))
    pinned = facts.extension_available if facts.extension_version else None
    found = next((item for item in observed.database_objects if not item.deleting), None)
    if found is None:
        former = next((item for item in observed.database_objects if item.name == cnpg.object_name(index)), None)
        if former:  # its name is taken until CloudNativePG has let go of it, and a write would not keep it
            return Step(Verdict.no(Reason.INSTALLING, f"{former} is being deleted; another one follows."))
        return _create(index, cluster, facts, pinned)
    entry = cnpg.extension_entry(found)
    requested = entry is not None and (not pinned or entry.get("version") == pinned)
    if requested and not found.settled:
        return Step(_cnpg_progress(found))
    if not cnpg.is_made_for(index, found):
        message = f"{found} is managed by someone else and lacks: {cnpg.extension_lines(pinned)}"
        return Step(Verdict.no(Reason.DATABASE_OBJECT_FOREIGN, message))
    message = f"Asked for pgvector through {found}."
    if entry is not None and requested:
        # The object was carried out, yet the extension is missing: CloudNativePG acts again on a changed version only.
        pinned = None if entry.get("version") else facts.extension_available
        message = f"pgvector was removed from the database; asked for it again through {found}."
    manifest = cnpg.with_extension_entry(index, found, cluster_name=cluster.name, version=pinned)
    return Step(Verdict.no(Reason.INSTALLING, message), (Apply(manifest),))


def _create(index: MemoryIndex, cluster: ClusterFacts, facts: DatabaseFacts, pinned: str | None) -> Step:
    target, database = (cluster.namespace, cluster.name), index.spec.database.name
    # The owner that the server names decides only whether the Cluster's word still holds.
    if cluster.application != ApplicationDatabase(database, facts.database_owner):
        quoted = cnpg.quoted_object(index, cluster=target, version=pinned)
        message = f"No Database object asks for pgvector in {database} of {cluster}, and the Cluster does not name the "
        return Step(Verdict.no(Reason.DATABASE_OBJECT_MISSING, f"{message}owner of that database: {quoted}"))
    manifest = cnpg.new_database_object(index, cluster=target, owner=cluster.application.owner, version=pinned)
    message = f"Asked for pgvector through Database {cluster.namespace}/{manifest['metadata']['name']}."
    return Step(Verdict.no(Reason.INSTALLING, message), (Apply(manifest),))


def _cnpg_progress(found: cnpg.DatabaseObject) -> Verdict:
    """Return a failing verdict that says how far CloudNativePG has applied a Database object that requests pgvector."""
    if found.applied is False:
        message = f"CloudNativePG could not carry out {found}: {found.message}"
        return Verdict.no(Reason.DATABASE_OBJECT_FAILED, message)
    return Verdict.no(Reason.INSTALLING, f"CloudNativePG has not yet carried out {found}.")
