"""Decide SchemaReady: the migration Job runs whenever the schema is behind this operator's migrations.

It also runs if no claim of this MemoryIndex on the table is recorded yet, because the migration records the claim.
"""

from dataclasses import replace
from functools import partial

from memory_operator.api.conditions import Verdict
from memory_operator.api.embedder import COMPONENT
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.authorization.claims import is_claimed_by
from memory_operator.reconcile.authorization.database_tls import plan_database_ca
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.embedder_tls import plan_embedder_ca
from memory_operator.reconcile.facts import Problem
from memory_operator.reconcile.jobs import JobRequest, plan_job
from memory_operator.reconcile.plan import Step, apply_drifted, waiting_for
from memory_operator.resources import workers
from memory_operator.resources.embedder import NEXT_COMPONENT
from memory_operator.resources.network_policies import worker_policy
from memory_recall.schema.columns.text_search import KEPT_CASE, KEPT_CASE_REMEDY
from memory_recall.schema.requirements.faults import messages, remedies
from memory_recall.status import DatabaseFacts


def plan_schema(context: Context, *, extension: Verdict, former: str | None = None) -> Step:
    """Return the verdict on the schema, the NetworkPolicy of all workers, and the migration Job if one is needed.

    `former` is the URL of an external embedder that workers call although the specification no longer names it.
    """
    index, observed = context.index, context.observed
    facts = observed.database_facts
    if facts is None or isinstance(observed.credentials, Problem):
        return waiting_for("the database")
    step = _plan_migration(context, facts, extension=extension)
    own_pods = any(
        ("Deployment", f"{index.name}-{component}") in observed.children for component in (COMPONENT, NEXT_COMPONENT)
    )
    policy = worker_policy(index, observed.credentials.ports, own_pods=own_pods, former=former)
    before = (*plan_database_ca(index, observed), *plan_embedder_ca(index, observed), *apply_drifted(observed, policy))
    return Step(step.verdict, (*before, *step.actions))


def _plan_migration(context: Context, facts: DatabaseFacts, *, extension: Verdict) -> Step:
    if facts.faults:
        return Step(Verdict.no(Reason.SCHEMA_UNSUPPORTED, messages(facts.faults), remedies(facts.faults)))
    embedding, dimensions = context.index.spec.embedding, facts.embedding_dimensions
    if facts.active_name == embedding.model and dimensions:
        dimensions = embedding.dimensions  # another length has been validated: the column is empty and may be replaced
    claimed = is_claimed_by(context.index, facts)
    if (facts.schema_current or facts.schema_ahead) and claimed and dimensions == facts.embedding_dimensions:
        return Step(_with_decision(context.index, _migrated(facts)))
    if not extension.holds:
        return waiting_for("pgvector")
    begun = f"takes the table over from {facts.claim} and " if facts.claim else "claims the table and "
    work = "migrates the schema"
    if facts.schema_differences:
        work = f"restores the rules; these are not what they must be: {facts.schema_differences}"
    former = None if claimed or facts.claim is None else facts.claim.uid
    build = partial(workers.migrate_job, active=facts.active_name, dimensions=dimensions, former=former)
    # The same migration would refuse the same vectors again; without vectors there is nothing to decide any more.
    decisions = frozenset([Reason.EXISTING_VECTORS] if facts.rows.embedded or facts.rows.estimated else [])
    request = JobRequest("migrate", build, Reason.MIGRATING, work if claimed else f"{begun}{work}", decisions)
    return plan_job(context, request)


def _migrated(facts: DatabaseFacts) -> Verdict:
    """Return that the schema holds, also at a revision of a later release, as after the operator was rolled back.

    Later revisions only add. Workers compare the rules of the table when they start, and write nothing if these are
    others than the ones that they know. The message also says where words are told apart by case, which no migration
    changes.
    """
    words = f" {KEPT_CASE} {KEPT_CASE_REMEDY}" if facts.words_keep_case else ""
    if not facts.schema_ahead:
        return Verdict.yes(Reason.MIGRATED, f"The schema is at revision {facts.schema_revision}.{words}")
    message = f"The schema is at revision {facts.schema_revision} of a later release; this one changes nothing of it."
    return Verdict.yes(Reason.SCHEMA_AHEAD, f"{message}{words}")


def _with_decision(index: MemoryIndex, verdict: Verdict) -> Verdict:
    """Return the verdict with a note if vectors of another table would be decided about without asking."""
    decision = index.spec.database.existing_vectors
    if decision == "Refuse":
        return verdict
    note = f"spec.database.existingVectors is {decision}, which also decides about a table that is restored alone later"
    return replace(verdict, message=f"{verdict.message} {note}; set it back to Refuse once the object is Ready.")
