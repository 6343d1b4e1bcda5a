"""Decide IndexReady: the HNSW index is built once the rows are embedded.

The index is built again if Postgres reports it invalid or spec.index changes. An HNSW index under another name, which
somebody made before the table had a MemoryIndex, is used as it is.
"""

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.indexing.backfill import needs_bulk
from memory_operator.reconcile.jobs import JobRequest, plan_job
from memory_operator.reconcile.plan import Step, waiting_for
from memory_operator.resources import workers

VALID_INDEX = Verdict.yes(Reason.VALID, "The HNSW index is valid.")


def plan_index(context: Context, *, schema: Verdict) -> Step:
    """Return the verdict on the HNSW index, with the Job that builds a missing, invalid or outdated index."""
    facts, spec = context.observed.database_facts, context.index.spec.index
    if facts is None:
        return waiting_for("the database")
    wanted = (spec.m, spec.ef_construction)
    outdated = facts.index.differs(*wanted)
    if facts.index.valid and not outdated:
        return Step(VALID_INDEX)
    if not schema.holds or needs_bulk(context, facts):
        return Step(Verdict.no(Reason.WAITING, "The HNSW index is built after the backfill."))
    activity = "builds the HNSW index"
    if outdated:
        activity += " anew with m {} and efConstruction {}; the old one serves meanwhile".format(*wanted)
    progress = facts.index.progress
    if progress is not None and progress.fraction is not None:
        activity += f" ({progress.fraction:.0%})"
    request = JobRequest("index", workers.index_job, Reason.BUILDING, activity)
    return plan_job(context, request)
