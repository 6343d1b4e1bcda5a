"""The health rules for Argo CD and Flux that docs/gitops ships, run against every situation."""

import pytest
import yaml

from memory_operator.api.conditions import by_type
from memory_operator.api.spec import Manifest
from tests.support.gitops.health import ARGO_CD, FLUX, WAITS_FROM_CHOICE, argo_cd, flux
from tests.support.gitops.kstatus import Kstatus
from tests.unit.chart.conftest import CHART
from tests.unit.memory_operator.situation_table import SITUATIONS
from tests.unit.memory_operator.situations import unplanned

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
    spec = yaml.safe_load((CHART / "crds" / "memoryindexes.yaml").read_text(encoding="utf-8"))["spec"]
    assert (FLUX["apiVersion"], FLUX["kind"]) == (f"{spec['group']}/v1alpha1", spec["names"]["kind"])
