"""Tables, columns and triggers: the migration Job, run whenever the database is behind this operator's migrations."""

from datetime import datetime

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile import jobs
from memory_operator.reconcile.observed import Observed
from memory_operator.reconcile.step import Step, waiting
from memory_operator.resources import workers
from memory_operator.resources.common import Images


def migrated(index: MemoryIndex, seen: Observed, images: Images, now: datetime, *, extension: Verdict) -> Step:
    """Whether the schema is current, and the Job that makes it so."""
    facts = seen.facts
    if facts is None:
        return waiting("the database")
    if facts.schema_ahead:
        return Step(Verdict.no(Reason.SCHEMA_AHEAD, f"Revision {facts.schema_revision} is unknown to this operator."))
    if facts.schema_current:
        return Step(Verdict.yes(Reason.MIGRATED, f"The schema is at revision {facts.schema_revision}."))
    if not extension.holds:
        return waiting("pgvector")
    work = jobs.Work(
        namespace=index.namespace,
        config=workers.config_of(index, images, "migrate"),
        build=lambda sequence: workers.migrate_job(index, images, sequence),
        reason=Reason.MIGRATING,
        doing="migrates the schema",
        pods=seen.pods_of("migrate"),
    )
    return jobs.run(seen.jobs_of("migrate"), work, now)
