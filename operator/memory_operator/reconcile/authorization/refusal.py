"""Decide whether a MemoryIndex is refused: the operator starts nothing for a refused object and stops its workers.

Its embedders go on, unless `existing_pods` says that their own pods must not run.
"""

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.reconcile.authorization.claims import check_claim
from memory_operator.reconcile.authorization.consent import missing_consent
from memory_operator.reconcile.authorization.permissions import check_permissions
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.plan import failed_step

# What DatabaseReachable says of a connection URI that leads to another database, or to a host that is not permitted.
WRONG_DATABASE = {Reason.DATABASE_NAME_MISMATCH, Reason.DATABASE_IDENTITY_MISMATCH, Reason.NOT_PERMITTED}


def refusal(context: Context, *, database: Verdict) -> Verdict | None:
    """Return a verdict with the cause if the object is refused, or None if the operator may act on it."""
    reference = context.observed.reference
    return (
        (failed_step(reference).verdict if reference else None)
        or check_permissions(context.index, context.permitted)
        or missing_consent(context.observed)
        or (database if database.reason in WRONG_DATABASE else None)
        or check_claim(context.index, context.observed)
    )
