"""The deletion of an object undoes what the migrations added only in a table that this object has claimed."""

from dataclasses import replace
from typing import Any

import pytest

from memory_operator.reconcile.facts import JobFacts, JobState, Peers
from memory_operator.resources import workers
from memory_recall.schema.claims_sql import TableClaim
from tests.unit.memory_operator.conftest import CLAIM, FULL, IDENTITY, World
from tests.unit.memory_operator.test_operator_deletion import condition, deleted, end

ENDED = replace(CLAIM, uid="u-0", name="former", created_at="2026-01-01T10:00:00Z")


@pytest.mark.parametrize("spec", [{"suspend": True}, {"embedding": {"dimensions": 1024}}, {}])
@pytest.mark.parametrize("claim", [None, ENDED, replace(CLAIM, system_identifier="1")], ids=["none", "ended", "copied"])
def test_a_table_that_the_object_never_claimed_keeps_its_vectors_and_the_object_goes(
    world: World, spec: dict[str, Any], claim: TableClaim | None
) -> None:
    """Migrated by the command line, or left by an object that was deleted with `Retain`; a Job would be refused."""
    index = deleted(world, deletionPolicy="Delete", **spec)
    found = replace(FULL, identity=IDENTITY, claim=claim)
    plan = end(world, index, database=found, peers=Peers(holder_exists=False))
    assert (plan.finalizer, plan.actions) == (False, ())
    (stays,) = plan.left_behind
    assert "table memories stays in database app" in stays
    assert "memory migrate --to base" in stays


def test_migrations_whose_claim_the_running_job_has_dropped_are_undone_to_the_end(world: World) -> None:
    """The claim goes with our own tables, before the revision."""
    index = deleted(world, deletionPolicy="Delete")
    config = workers.config_fingerprint(index, world.images, "uninstall")
    running = JobFacts("mem-uninstall-x", "uninstall", config, 0, JobState.ACTIVE)
    found = replace(FULL, identity=IDENTITY, claim=None)
    plan = end(world, index, database=found, jobs=(running,))
    assert plan.finalizer is None
    assert "Job mem-uninstall-x drops" in condition(plan, "Ready")["message"]
    taken = end(world, index, database=replace(found, claim=replace(CLAIM, uid="u-2")), jobs=(running,))
    assert (taken.finalizer, taken.actions) == (False, ())
