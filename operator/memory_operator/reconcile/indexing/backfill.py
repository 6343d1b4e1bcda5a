"""Decide Backfilled: the backfill Job embeds many pending rows, the sync Deployment embeds few.

Until the HNSW index exists, the Job embeds every pending row, because building the index in bulk afterwards is far
cheaper than inserting row by row. Later the Job runs only if there are more pending rows than the single sync worker
should embed. The Job and the sync worker never run at the same time. While the sync worker is responsible, the
condition holds only if the sync worker is ready, because otherwise the next new row would get no vector. It is ready
once it has reached the database and an embedder of the active model, and until it waits for one of them again.
"""

from datetime import datetime, timedelta

from memory_operator.api.conditions import Verdict
from memory_operator.api.embedder import COMPONENT
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.embedder import mismatch
from memory_operator.reconcile.facts import JobFacts, JobState, Observed
from memory_operator.reconcile.jobs import JobRequest, active_job, plan_job
from memory_operator.reconcile.plan import Step, apply_drifted, waiting_for
from memory_operator.reconcile.rollout import pods_serve, rollout_obstacle, serves, template_drifted
from memory_operator.resources import workers
from memory_recall.status import DatabaseFacts, RowCounts

BACKFILL_MIN_ROWS = 200
IDLE_LIMIT = timedelta(seconds=120)  # of a worker while rows are pending; its longest retry pauses for 10 s
# A pod that runs and waits has no fault of its own, although the roll-out that made it does not end in time.
_WITHOUT_READY_POD = {Reason.STARTING, Reason.PROGRESS_DEADLINE_EXCEEDED}


def plan_backfill(context: Context, *, schema: Verdict, embedder: Verdict) -> Step:
    """Return the verdict on Backfilled, and the writes of the backfill Job and the sync Deployment."""
    index, observed = context.index, context.observed
    facts = observed.database_facts
    if facts is None or not schema.holds:
        return waiting_for("the database" if facts is None else "the schema")
    bulk = needs_bulk(context, facts)
    sync = workers.sync_deployment(index, context.images, replicas=0 if bulk else 1)
    if not bulk:
        changes = template_drifted(observed, sync)
        step = Step(sync_verdict(context, facts.rows, embedder=embedder, changes=changes))
    elif active_job(observed.jobs_of("backfill")) or _is_model_served(index, observed, embedder):
        request = JobRequest("backfill", workers.backfill_job, Reason.BACKFILLING, "embeds the pending rows")
        step = plan_job(context, request)
        running = active_job(observed.jobs_of("backfill"))
        if running and not step.actions and step.verdict.reason is Reason.BACKFILLING:
            step = Step(standstill(context, facts.rows, running) or step.verdict)
    else:
        step = Step(Verdict.no(Reason.WAITING, "Rows are pending; waiting for the embedder."))
    return Step(step.verdict, (*apply_drifted(observed, sync), *step.actions))


def _is_model_served(index: MemoryIndex, observed: Observed, embedder: Verdict) -> bool:
    """Return whether the embedder serves the specified model, which it may do although a roll-out is under way."""
    if embedder.reason is not Reason.ROLLING_OUT:
        return embedder.reason is Reason.AVAILABLE
    live = observed.children.get(("Deployment", f"{index.name}-{COMPONENT}"))
    right_model = live is not None and serves(live, index.spec.embedding.model) and mismatch(index, observed) is None
    return right_model and pods_serve(observed.embedder)


def standstill(context: Context, rows: RowCounts, job: JobFacts) -> Verdict | None:
    """Return the verdict on Backfilled if the running backfill has embedded nothing for too long, or None.

    While it makes the words of texts, it embeds nothing. The time before its pods run is not its own.
    """
    observed = context.observed
    idle_since = observed.idle_since if rows.pending and not rows.without_words else None
    if idle_since is None or not any(pod.running and not pod.deleting for pod in observed.pods_of("backfill")):
        return None
    if context.now - max(idle_since, job.created_at or idle_since) < IDLE_LIMIT:
        return None
    seconds = IDLE_LIMIT.total_seconds()
    message = f"Job {job.name} has embedded none of the {rows.pending} pending rows for {seconds:g} s."
    return Verdict.no(Reason.BACKFILL_NOT_PROGRESSING, message)


def needs_backfill_job(rows: RowCounts, *, index_valid: bool, last_run: JobState | None) -> bool:
    """Return whether the rows need a Job: many are pending, or no Job has completed the first backfill yet.

    The first backfill also makes the words of all texts, where the search column is ours. Of rows that could not be
    counted, nobody knows how many are pending after it.
    """
    first_fill = not index_valid and last_run is not JobState.COMPLETE
    many = rows.pending >= BACKFILL_MIN_ROWS and not rows.uncounted
    return many or (first_fill and (rows.pending > 0 or rows.without_words > 0))


def sync_verdict(context: Context, rows: RowCounts, *, embedder: Verdict, changes: bool = False) -> Verdict:
    """Return the verdict on Backfilled while the sync worker embeds.

    `embedder` is the verdict on EmbedderReady. `changes` says that the Deployment of the sync worker is being changed
    now.
    """
    index, observed = context.index, context.observed
    name = f"Deployment {index.namespace}/{index.name}-sync"
    if observed.sync is None:
        return Verdict.no(Reason.STARTING, f"{name} is being created.")
    obstacle = rollout_obstacle(name, observed.sync, observed.pods_of("sync"), changes=changes)
    waits_since = _waits_since(observed) if obstacle and obstacle.reason in _WITHOUT_READY_POD else None
    if obstacle and waits_since is None:
        return obstacle
    if observed.key_refused:
        message = f"{name} waits, since its API key is lost or refused; {rows.pending} rows are pending."
        return Verdict.no(Reason.EMBEDDER_UNAUTHORIZED, message, index.key_remedy)
    if waits_since:
        return _waiting(name, embedder, context.now - waits_since)
    if rows.pending and observed.idle_since and context.now - observed.idle_since >= IDLE_LIMIT:
        seconds = IDLE_LIMIT.total_seconds()
        return Verdict.no(
            Reason.SYNC_NOT_PROGRESSING, f"{name} has embedded none of the pending rows for {seconds:g} s."
        )
    return _progress(rows)


def _waits_since(observed: Observed) -> datetime | None:
    """Return the time since which a pod of the sync worker's present template has run without being ready, or None."""
    if observed.sync is None or not observed.sync.current:
        return None
    pods = [pod for pod in observed.pods_of("sync") if not pod.deleting]
    return next((pod.unready_since for pod in pods if pod.unready_since), None)


def _waiting(name: str, embedder: Verdict, lasts: timedelta) -> Verdict:
    """Return the verdict on Backfilled while the sync worker runs and is not ready."""
    if embedder.reason is Reason.SCALED_TO_ZERO:
        return Verdict.no(Reason.SCALED_TO_ZERO, f"{name} waits for the embedder, which has no pods.")
    message = f"{name} runs, and waits for the database or for an embedder that serves the active model"
    if lasts < IDLE_LIMIT:
        return Verdict.no(Reason.STARTING, f"{message}.")
    return Verdict.no(Reason.SYNC_NOT_PROGRESSING, f"{message}, for more than {IDLE_LIMIT.total_seconds():g} s.")


def _progress(rows: RowCounts) -> Verdict:
    """Return the verdict on Backfilled while a sync worker runs that gets on."""
    if rows.uncounted:
        message = f"The sync worker runs. Its about {rows.total} rows take too long to count, the pending ones too."
        return Verdict.yes(Reason.SYNCING, message)
    if rows.without_words:
        message = f"The sync worker makes the words of {rows.without_words} texts, which no search by words finds yet."
        return Verdict.no(Reason.BACKFILLING, message)
    if rows.pending:
        return Verdict.yes(Reason.SYNCING, "The sync worker embeds the rows that were added or changed lately.")
    if rows.quarantined:
        reason = Reason.QUARANTINED_ROWS
        return Verdict.yes(reason, f"Every row has a vector but those that were given up. {reason.remedy}")
    return Verdict.yes(Reason.COMPLETE, "Every row that may have a vector has one.")


def needs_bulk(context: Context, facts: DatabaseFacts) -> bool:
    """Return whether the backfill Job, not the sync worker, embeds now: a Job still runs, or one is needed."""
    runs = context.observed.jobs_of("backfill")
    work = workers.work_of(workers.config_fingerprint(context.index, context.images, "backfill"))
    if active_job(runs):
        return True
    same_work = [job.state for job in runs if workers.work_of(job.config) == work]
    last_run = same_work[-1] if same_work else None
    return needs_backfill_job(facts.rows, index_valid=facts.index.valid, last_run=last_run)
