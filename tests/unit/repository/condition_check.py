"""Follows the condition `LastBackup` from Backup objects to the status and to its screen; run in a patched tree.

It is a program of its own, so that the patched tree's code is what it imports. It fails where the condition is missing,
or where the object is not Ready because of it.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import memory_operator
from memory_operator.clients.kube import KubeError
from memory_operator.controller.observe import Observer
from memory_recall.memory_index.pipeline import pipeline
from memory_recall.memory_index.screen import screen
from tests.unit.memory_operator.conftest import World


def backup(name: str, day: int, phase: str, *, cluster: str = "pg", error: str = "") -> dict[str, Any]:
    """A Backup object as CloudNativePG leaves it."""
    return {
        "metadata": {"namespace": "dbaas", "name": name, "creationTimestamp": f"2026-01-{day:02}T02:00:00Z"},
        "spec": {"cluster": {"name": cluster}},
        "status": {"phase": phase, "error": error},
    }


class Kube:
    """An API server that holds these Backup objects, or refuses to list them."""

    def __init__(self, *backups: dict[str, Any], refuses: bool = False) -> None:
        self._backups, self._refuses = backups, refuses

    async def list(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        assert (kind, namespace) == ("Backup", "dbaas")
        if self._refuses:
            raise KubeError("listing Backup", 403, "forbidden", refused=True)
        return list(self._backups)


def conditions(kube: Kube) -> dict[str, dict[str, Any]]:
    """The conditions of a settled object whose Cluster has these backups; the screen shows each of them."""
    world = World()
    index, observed, _ = world.settled()
    observer: Any = Observer
    last = asyncio.run(observer(kube, None, None)._last_backup("dbaas", "pg"))
    cluster: Any = observed.cluster
    plan = world.decide(index, **vars(replace(observed, cluster=replace(cluster, last_backup=last))))
    assert plan.status is not None
    found = {condition["type"]: condition for condition in plan.status["conditions"]}
    meta = {"namespace": "team", "name": "mem", "generation": 1}
    lines = screen(pipeline({"metadata": meta, "status": plan.status}, []))
    assert any(line.strip().startswith("last backup") for line in lines) is ("LastBackup" in found), lines
    assert (found["Ready"]["status"], found["Reconciling"]["status"]) == ("True", "False"), found
    return found


def main() -> None:
    """Raise an error unless the condition is all that it should be."""
    assert Path(memory_operator.__file__).is_relative_to(Path.cwd()), "the patched tree is not what is imported"
    nightly, broken = backup("nightly", 2, "completed"), backup("broken", 3, "failed", error="the bucket is full")
    others = backup("other", 5, "failed", cluster="elsewhere"), backup("running", 4, "running")
    done = conditions(Kube(nightly, *others))["LastBackup"]
    assert (done["status"], done["reason"]) == ("True", "BackedUp"), done
    assert "Backup dbaas/nightly of 2026-01-02T02:00:00Z was completed." in done["message"]
    failed = conditions(Kube(broken, nightly))["LastBackup"]
    assert (failed["status"], failed["reason"]) == ("False", "BackupFailed"), failed
    assert "the bucket is full" in failed["message"]
    assert "LastBackup" not in conditions(Kube(*others))
    assert "LastBackup" not in conditions(Kube(nightly, refuses=True))
    rules = Path("charts", "memory-index", "templates", "_rules.tpl").read_text(encoding="utf-8")
    assert "resources: [backups]\n  verbs: [list]" in rules, "the operator may not read Backup objects"


if __name__ == "__main__":
    main()
