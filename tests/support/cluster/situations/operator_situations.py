"""Situations of the operator itself: it has not seen an object or an edit yet, or may not read a Secret."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from devcluster.demo import objects
from tests.support.cluster.api import INDEXES, Api, Object
from tests.support.cluster.conditions import condition
from tests.support.cluster.manifests import external_index
from tests.support.cluster.platform import OPERATOR
from tests.support.cluster.situations.situation import KEY, NAME, SECRET, Stage
from tests.support.gitops.kstatus import Kstatus, compute

_NAMESPACE = "sit-operator"
_PATH = f"{INDEXES}/namespaces/{_NAMESPACE}/memoryindexes/{NAME}"
_SECONDS = 90.0


async def run(stage: Stage, api: Api, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Make the situations one after the other; return for each whether its expectation was met, and what was seen."""
    say("situations of the operator itself")
    cluster, postgres = stage.cluster, stage.platform.postgres
    cluster.apply(objects.namespace(_NAMESPACE), objects.dsn_secret(_NAMESPACE, SECRET, KEY, "no uri"))
    postgres.allow(_NAMESPACE)
    database = {
        "cluster": {"name": postgres.name, "namespace": postgres.namespace},
        "name": "situations",
        "credentials": {"secretName": SECRET, "key": KEY},
    }
    entries = []
    await asyncio.to_thread(stage.platform.scale_operator, 0)
    await api.create(_PATH.rpartition("/")[0], external_index(_NAMESPACE, NAME, database))
    entries.append(await _entry(api, "an object that no operator has seen", "none", "", Kstatus.IN_PROGRESS))
    await asyncio.to_thread(stage.platform.scale_operator, 1)
    entries.append(
        await _entry(api, "an object that a new operator has seen", "False", "SecretInvalid", Kstatus.FAILED)
    )
    await asyncio.to_thread(stage.platform.scale_operator, 0)
    await api.patch(_PATH, {"spec": {"index": {"m": 20}}})
    entries.append(
        await _entry(api, "an edit that no operator has seen", "False", "SecretInvalid", Kstatus.IN_PROGRESS)
    )
    rules = cluster.kubectl_json("get", "clusterrole", OPERATOR)["rules"]
    without = [rule for rule in rules if "secrets" not in rule["resources"]]
    _set_rules(stage, without)
    await asyncio.to_thread(stage.platform.scale_operator, 1)
    entries.append(
        await _entry(
            api, "a Secret that the operator may not read", "Unknown", "ObservationFailed", Kstatus.IN_PROGRESS
        )
    )
    _set_rules(stage, rules)
    entries.append(await _entry(api, "a Secret that it may read again", "False", "SecretInvalid", Kstatus.FAILED))
    cluster.kubectl("delete", "namespace", _NAMESPACE, "--wait", "--timeout=240s")
    return entries


def _set_rules(stage: Stage, rules: list[Object]) -> None:
    stage.cluster.kubectl("patch", "clusterrole", OPERATOR, "--type=merge", f"--patch={json.dumps({'rules': rules})}")


async def _entry(api: Api, name: str, ready: str, reason: str, kstatus: Kstatus) -> dict[str, Any]:
    """Wait until the object has the given status and reason of Ready and the given kstatus, for 90 seconds at most.

    Return the name of the situation, whether this happened, and what was seen last if it did not.
    """
    deadline = time.monotonic() + _SECONDS
    while True:
        item = await api.get(_PATH)
        found = condition(item, "Ready")
        seen = (found.get("status", "none"), found.get("reason", ""), compute(item))
        if seen == (ready, reason, kstatus) or time.monotonic() > deadline:
            met = seen == (ready, reason, kstatus)
            return {"situation": name, "key": "operator", "made": "real", "met": met, "seen": "" if met else str(seen)}
        await asyncio.sleep(1)
