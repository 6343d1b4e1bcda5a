"""In every named situation the status tells the truth, as kstatus, Argo CD and Flux read it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from memory_operator.api.conditions import by_type
from memory_operator.api.spec import Manifest
from tests.support.gitops import kstatus
from tests.support.gitops.health import ARGO_CD, FLUX, WAITS_FROM_CHOICE, argo_cd, flux
from tests.support.gitops.kstatus import Kstatus
from tests.support.yaml_text import read_yaml
from tests.unit.chart.conftest import CHART
from tests.unit.memory_operator.situation_table import SITUATIONS
from tests.unit.memory_operator.situations import Situation, unplanned

UNPLANNED = unplanned()
Conditions = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module", params=SITUATIONS, ids=lambda situation: situation.name)
def situation(request: pytest.FixtureRequest) -> Situation:
    """Each situation of the table, with its object made once."""
    chosen: Situation = request.param
    return chosen


@pytest.fixture(scope="module")
def resource(situation: Situation) -> Manifest:
    return situation.resource()


@pytest.fixture(scope="module")
def conditions(resource: Manifest) -> Conditions:
    return by_type(resource["status"]["conditions"])


@pytest.mark.promise("active-model-file-recognised", case="another file of the same name")
@pytest.mark.finding("D6", case="a roll-out beside the old pod")
@pytest.mark.finding("D6", case="a roll-out whose pod crash-loops")
@pytest.mark.finding("D7", case="rows that sync has left for two minutes")
@pytest.mark.finding("D10", case="another file of the same name")
@pytest.mark.finding("D10", case="another file in the specification")
@pytest.mark.finding("D11", case="no pods, since nothing is queued")
def test_the_conditions_and_their_reasons_are_as_expected(situation: Situation, conditions: Conditions) -> None:
    ready = conditions["Ready"]
    assert (ready["status"], ready["reason"]) == (situation.ready, situation.reason)
    if situation.cause:
        kind, *expected = situation.cause
        assert [conditions[kind]["status"], conditions[kind]["reason"]] == expected


@pytest.mark.finding("D16", case="a Secret that is not there yet")
def test_kstatus_reads_the_object_as_it_is_meant(situation: Situation, resource: Manifest) -> None:
    assert kstatus.compute(resource) == situation.kstatus


@pytest.mark.finding("D7", case="sync crash-loops while rows are pending")
def test_an_object_is_ready_only_where_recalls_by_meaning_work_and_new_rows_get_vectors(
    situation: Situation, conditions: Conditions
) -> None:
    assert conditions["Ready"]["status"] != "True" or (situation.recall and situation.embeds)


@pytest.mark.finding("D25")
def test_reconciling_and_stalled_are_never_true_together(conditions: Conditions) -> None:
    assert [conditions[kind]["status"] for kind in ("Reconciling", "Stalled")] != ["True", "True"]


@pytest.mark.parametrize("name", UNPLANNED)
def test_kstatus_takes_an_object_without_a_decided_status_for_unfinished(name: str) -> None:
    resource, expected = UNPLANNED[name]
    assert kstatus.compute(resource) == expected


def test_there_are_at_least_sixty_situations_of_different_names() -> None:
    names = Counter(situation.name for situation in SITUATIONS)
    assert len(names) >= 60
    assert names.most_common(1)[0][1] == 1


CASES = {situation.name: (situation.resource, situation.kstatus) for situation in SITUATIONS} | {
    name: ((lambda resource=resource: resource), expected) for name, (resource, expected) in unplanned().items()
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Manifest, Kstatus, str]:
    """An object, what kstatus says of it, and the reason of Ready where its last edit has been seen."""
    make, expected = CASES[request.param]
    resource = make()
    status = resource["status"]
    seen = status["observedGeneration"] == resource["metadata"]["generation"]
    ready = by_type(status.get("conditions") or ()).get("Ready", {})
    return resource, expected, ready.get("reason", "") if seen else ""


def test_argo_cd_shows_what_kstatus_says_and_calls_suspended_what_waits_from_choice(
    case: tuple[Manifest, Kstatus, str],
) -> None:
    resource, expected, reason = case
    health = argo_cd(resource)
    assert health["status"] == ("Suspended" if reason in WAITS_FROM_CHOICE else ARGO_CD[expected])
    assert expected is Kstatus.TERMINATING or reason in health["message"]


def test_flux_decides_as_kstatus_does_and_lets_no_pods_pass(case: tuple[Manifest, Kstatus, str]) -> None:
    resource, expected, reason = case
    if "deletionTimestamp" not in resource["metadata"]:
        assert flux(resource) == (Kstatus.CURRENT if reason == "ScaledToZero" else expected)


def test_flux_waits_for_an_object_whose_status_is_empty() -> None:
    """So it is where the definition is older than the operator."""
    assert flux({"metadata": {"generation": 1}, "spec": {}, "status": {}}) == Kstatus.IN_PROGRESS


def test_flux_is_told_the_kind_of_the_definition() -> None:
    spec = read_yaml((CHART / "crds" / "memoryindexes.yaml").read_text(encoding="utf-8"))["spec"]
    assert (FLUX["apiVersion"], FLUX["kind"]) == (f"{spec['group']}/v1alpha1", spec["names"]["kind"])
