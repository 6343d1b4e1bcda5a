"""Decide SchemaReady: the migration Job runs whenever the schema is behind this operator's migrations."""

from datetime import datetime

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.facts import DatabaseFacts, Observed
from memory_operator.reconcile.jobs import JobRequest, plan_job
from memory_operator.reconcile.plan import Step, waiting_for
from memory_operator.resources import workers
from memory_operator.resources.common import Images


def plan_schema(index: MemoryIndex, observed: Observed, images: Images, now: datetime, *, extension: Verdict) -> Step:
    """Return the verdict on the schema, and the migration Job where the schema is behind."""
    if observed.database_facts is None:
        return waiting_for("the database")
    verdict = schema_verdict(observed.database_facts)
    if verdict.reason is not Reason.SCHEMA_BEHIND:
        return Step(verdict)
    if not extension.holds:
        return waiting_for("pgvector")
    differing = observed.database_facts.schema_differences
    doing = f"restores the rules; these are not what they must be: {differing}" if differing else "migrates the schema"
    request = JobRequest("migrate", workers.migrate_job, Reason.MIGRATING, doing)
    return plan_job(index, observed, images, now, request)


def schema_verdict(facts: DatabaseFacts) -> Verdict:
    """Compare the revision of the database with the newest one that this operator knows."""
    if facts.schema_ahead:
        return Verdict.no(Reason.SCHEMA_AHEAD, f"Revision {facts.schema_revision} is unknown to this operator.")
    if facts.schema_current:
        return Verdict.yes(Reason.MIGRATED, f"The schema is at revision {facts.schema_revision}.")
    if facts.schema_differences:
        return Verdict.no(Reason.SCHEMA_BEHIND, f"The schema is not what it must be: {facts.schema_differences}.")
    return Verdict.no(Reason.SCHEMA_BEHIND, f"The schema is at revision {facts.schema_revision}.")
