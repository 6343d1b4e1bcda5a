"""What CloudNativePG says of a Cluster whose database does not answer decides whether a person has to act."""

from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.clients import object_facts
from memory_operator.reconcile.database import PASSING_PHASES, PHASES_OF_PERSONS
from memory_operator.reconcile.facts import Problem
from tests.unit.memory_operator.conftest import CLUSTER, FULL, World, condition

SILENT = Problem(Reason.DATABASE_UNREACHABLE, "It does not answer.")
UNKNOWN = (
    "Instance Status Extraction Error: HTTP communication issue",
    "Unable to create required cluster objects",
    "?",
)


def outage(phase: str) -> dict[str, Any]:
    cluster = replace(CLUSTER, healthy=False, phase=phase, phase_reason="Enlarge the volume")
    return {"cluster": cluster, "database": SILENT}


@pytest.mark.parametrize("phase", sorted(PHASES_OF_PERSONS))
@pytest.mark.finding("operator F9")
def test_a_phase_that_needs_a_person_stalls_at_once_with_its_words(world: World, phase: str) -> None:
    plan = world.decide(**outage(phase))
    ready = condition(plan, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ClusterNeedsAction")
    assert condition(plan, "Stalled")["status"] == "True"
    assert f"{phase}: Enlarge the volume." in ready["message"]
    assert "kubectl -n dbaas describe clusters.postgresql.cnpg.io pg" in ready["message"]
    assert "Nothing to do" not in ready["message"]


@pytest.mark.parametrize("phase", UNKNOWN)
@pytest.mark.finding("operator F9")
def test_any_other_phase_stalls_after_a_grace_period(world: World, phase: str) -> None:
    plan = world.decide(**outage(phase))
    assert condition(plan, "Ready")["reason"] == "ClusterNotHealthy"
    assert condition(plan, "Stalled")["status"] == "False"
    later = world.decide_again(plan, 120, **outage(phase))
    assert condition(later, "Stalled")["status"] == "True"


@pytest.mark.parametrize("phase", sorted(PASSING_PHASES))
def test_a_phase_that_passes_never_stalls(world: World, phase: str) -> None:
    plan = world.decide(**outage(phase))
    later = world.decide_again(plan, 7200, **outage(phase))
    assert condition(later, "Ready")["reason"] == "ClusterNotReady"
    assert condition(later, "Stalled")["status"] == "False"


@pytest.mark.parametrize("phase", [*sorted(PHASES_OF_PERSONS), *UNKNOWN])
def test_a_database_that_answers_is_not_judged_by_the_phase(world: World, phase: str) -> None:
    plan = world.decide(cluster=replace(CLUSTER, healthy=False, phase=phase), database=FULL)
    assert condition(plan, "DatabaseReachable")["status"] == "True"


def test_the_words_of_cloudnative_pg_become_one_line() -> None:
    status = {"phase": "Not enough disk space", "phaseReason": "full\n  enlarge it"}
    facts = object_facts.cluster_facts({"metadata": {"namespace": "a", "name": "b"}, "status": status})
    assert (facts.phase_reason, facts.healthy) == ("full enlarge it", False)
