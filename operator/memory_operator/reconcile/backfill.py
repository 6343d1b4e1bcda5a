"""Rows without a vector: the backfill Job for many, the sync Deployment for the trickle.

Until the index exists every pending row is the Job's, since a bulk build of the index afterwards is far cheaper
than inserting row by row. Later the Job returns only for more rows than the one sync worker should take. The two
never run at the same time.
"""

from datetime import datetime

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile import jobs
from memory_operator.reconcile.observed import DatabaseFacts, JobState, Observed, Rows
from memory_operator.reconcile.plan import Action, Apply
from memory_operator.reconcile.step import Step, waiting
from memory_operator.resources import workers
from memory_operator.resources.common import Images
from memory_operator.resources.drift import drifted

BULK_ROWS = 200


def filled(
    index: MemoryIndex, seen: Observed, images: Images, now: datetime, *, schema: Verdict, embedder: Verdict
) -> Step:
    """Whether every row that may have a vector has one, and the work that is missing."""
    facts = seen.facts
    if facts is None or not schema.holds:
        return waiting("the database" if facts is None else "the schema")
    step, bulk = _step(index, seen, images, now, facts=facts, embedder=embedder)
    sync = workers.sync_deployment(index, images, replicas=0 if bulk else 1)
    live = seen.children.get(("Deployment", sync["metadata"]["name"]))
    more: tuple[Action, ...] = (Apply(sync),) if drifted(sync, live) else ()
    return Step(step.verdict, (*more, *step.actions))


def needs_bulk(rows: Rows, *, index_valid: bool, last_run: JobState | None) -> bool:
    """Whether the pending rows are the Job's: many of them, or the first fill that no Job has ended yet."""
    first_fill = not index_valid and last_run is not JobState.COMPLETE
    return rows.pending >= BULK_ROWS or (first_fill and rows.pending > 0)


def _step(
    index: MemoryIndex, seen: Observed, images: Images, now: datetime, *, facts: DatabaseFacts, embedder: Verdict
) -> tuple[Step, bool]:
    work = jobs.Work(
        namespace=index.namespace,
        config=workers.config_of(index, images, "backfill"),
        build=lambda sequence: workers.backfill_job(index, images, sequence),
        reason=Reason.BACKFILLING,
        doing="embeds the pending rows",
        pods=seen.pods_of("backfill"),
    )
    runs = seen.jobs_of("backfill")
    mine = [job for job in runs if job.config == work.config]
    last_run = mine[-1].state if mine else None
    if jobs.active(runs):
        return jobs.run(runs, work, now), True
    if not needs_bulk(facts.rows, index_valid=facts.index_valid, last_run=last_run):
        return Step(trickle(facts.rows)), False
    if not (embedder.holds and embedder.reason is Reason.AVAILABLE):
        return Step(Verdict.no(Reason.WAITING, "Rows are pending; waiting for the embedder.")), True
    return jobs.run(runs, work, now), True


def trickle(rows: Rows) -> Verdict:
    """What may be said where the sync worker takes every pending row."""
    if rows.pending:
        return Verdict.yes(Reason.SYNCING, "The sync worker embeds the rows that were added or changed lately.")
    if rows.quarantined:
        reason = Reason.QUARANTINED_ROWS
        return Verdict.yes(reason, f"Every row has a vector but those that were given up. {reason.remedy}")
    return Verdict.yes(Reason.COMPLETE, "Every row that may have a vector has one.")
