"""The health rules for Argo CD and Flux that docs/gitops ships, run against every situation."""

import json
from pathlib import Path
from typing import Any

import cel
import pytest
import yaml
from lupa import lua51

from memory_operator.api.conditions import by_type
from memory_operator.api.spec import Manifest
from tests.unit.chart.conftest import CHART
from tests.unit.memory_operator.kstatus import Kstatus
from tests.unit.memory_operator.situation_table import SITUATIONS
from tests.unit.memory_operator.situations import unplanned

FOLDER = Path(__file__).parents[3] / "docs" / "gitops"
LUA = (FOLDER / "argocd-health.lua").read_text(encoding="utf-8")
(FLUX,) = yaml.safe_load((FOLDER / "flux-health.yaml").read_text(encoding="utf-8"))["healthCheckExprs"]
ARGO_CD = {
    Kstatus.CURRENT: "Healthy",
    Kstatus.IN_PROGRESS: "Progressing",
    Kstatus.FAILED: "Degraded",
    Kstatus.TERMINATING: "Progressing",
}
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


def argo_cd(resource: Manifest) -> Any:
    """Run the Lua script as Argo CD does: with the object in the global `obj`."""
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from(json.loads(json.dumps(resource)), recursive=True)
    return lua.execute(LUA)


def flux(resource: Manifest) -> Kstatus:
    """Evaluate the expressions in Flux's order, after its own comparison of the generations."""
    observed = resource["status"].get("observedGeneration")
    if observed is not None and observed != resource["metadata"]["generation"]:
        return Kstatus.IN_PROGRESS
    for name, result in (
        ("inProgress", Kstatus.IN_PROGRESS),
        ("failed", Kstatus.FAILED),
        ("current", Kstatus.CURRENT),
    ):
        if cel.evaluate(FLUX[name], {name: resource[name] for name in ("metadata", "spec", "status")}):
            return result
    return Kstatus.IN_PROGRESS


def test_argo_cd_shows_what_kstatus_says_and_calls_suspended_what_waits_from_choice(
    case: tuple[Manifest, Kstatus, str],
) -> None:
    resource, expected, reason = case
    health = argo_cd(resource)
    waits = reason in {"Suspended", "ScaledToZero"}
    assert health["status"] == ("Suspended" if waits else ARGO_CD[expected])
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
