"""Evaluates the health rules in docs/gitops on an object, in the way of Argo CD and of Flux."""

import json
from pathlib import Path
from typing import Any

import cel
import yaml
from lupa import lua51

from tests.support.gitops.kstatus import Kstatus

_FOLDER = Path(__file__).parents[3] / "docs" / "gitops"
_LUA = (_FOLDER / "argocd-health.lua").read_text(encoding="utf-8")
(FLUX,) = yaml.safe_load((_FOLDER / "flux-health.yaml").read_text(encoding="utf-8"))["healthCheckExprs"]
ARGO_CD = {
    Kstatus.CURRENT: "Healthy",
    Kstatus.IN_PROGRESS: "Progressing",
    Kstatus.FAILED: "Degraded",
    Kstatus.TERMINATING: "Progressing",
}
WAITS_FROM_CHOICE = {"Suspended", "ScaledToZero"}  # Argo CD shows these as Suspended


def argo_cd(resource: dict[str, Any]) -> Any:
    """Run the Lua script for Argo CD on an object, which the script finds in the global `obj`; return the result."""
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from(json.loads(json.dumps(resource)), recursive=True)
    return lua.execute(_LUA)


def flux(resource: dict[str, Any]) -> Kstatus:
    """Return the status that Flux would give to an object.

    As in Flux, the object's generations are compared first; then the expressions are evaluated in Flux's order.
    """
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
