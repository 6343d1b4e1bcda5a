"""What reaches the object although a reconcile fails, and the Events that tell what has changed."""

import base64
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from memory_operator.api.reasons import Reason
from memory_operator.clients.kube import KubeError
from memory_operator.controller.events import of_transitions
from memory_operator.controller.history import IdleTracker
from memory_operator.controller.metrics import Metrics
from memory_operator.controller.reporter import Reporter
from memory_operator.reconcile.facts import Problem
from memory_operator.resources.common import Images
from memory_operator.resources.events import Event, event_manifest, memory_index
from tests.unit.memory_operator.api_server import Answer, Connect, connect, failure
from tests.unit.memory_operator.conftest import CLAIM, FULL, IDENTITY, START, World
from tests.unit.memory_operator.test_operator_controller import DSN, KEY, Bench, bench

__all__ = ["bench", "connect"]  # the fixtures
FORBIDDEN = KubeError("reading Secret team/dsn", 403, "secrets is forbidden", refused=True)


def refuse_reads(bench: Bench, error: Exception = FORBIDDEN) -> None:
    """Let every read of a Secret fail."""
    read = bench.api.get

    async def get(kind: str, namespace: str, name: str) -> Any:
        if kind == "Secret":
            raise error
        return await read(kind, namespace, name)

    bench.api.get = get  # type: ignore[method-assign]


@pytest.mark.finding("D5")
async def test_an_observation_that_fails_three_times_makes_ready_unknown_and_names_what_was_refused(
    bench: Bench,
) -> None:
    refuse_reads(bench)
    await bench.reconcile(2)
    assert bench.api.writes == [], "two failures may be a moment's"
    await bench.reconcile()
    ready = bench.api.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "ObservationFailed")
    assert "reading Secret team/dsn: secrets is forbidden" in ready["message"]
    assert bench.api.condition("Reconciling")["status"] == "True"
    assert bench.api.condition("Stalled")["status"] == "False"


@pytest.mark.finding("D5")
async def test_an_object_that_was_ready_does_not_stay_so_while_it_cannot_be_observed(
    bench: Bench, world: World
) -> None:
    bench.api.index["status"] = {
        "observedGeneration": 1,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "."}],
    }
    bench.api.index["metadata"]["generation"] = 2
    refuse_reads(bench)
    await bench.reconcile(3)
    assert bench.api.condition("Ready")["status"] == "Unknown"
    assert bench.api.index["status"]["observedGeneration"] == 2


async def test_a_failure_of_half_a_minute_is_reported_even_where_it_is_the_second(bench: Bench, world: World) -> None:
    refuse_reads(bench)
    await bench.reconcile()
    world.now += timedelta(seconds=30)
    await bench.reconcile()
    assert bench.api.condition("Ready")["reason"] == "ObservationFailed"


async def test_a_lasting_failure_is_written_once_and_ends_with_the_next_success(bench: Bench) -> None:
    read = bench.api.get
    refuse_reads(bench)
    await bench.reconcile(3)
    bench.api.writes.clear()
    await bench.reconcile(3)
    assert bench.api.writes == []
    bench.api.get = read  # type: ignore[method-assign]
    await bench.reconcile()
    assert bench.api.condition("Ready")["status"] == "False"
    refuse_reads(bench)
    await bench.reconcile(2)
    assert bench.api.condition("Ready")["status"] == "False", "failures are counted anew"


async def test_a_webhook_that_fails_reaches_the_status(bench: Bench) -> None:
    bench.api.refusal = KubeError("applying Database dbaas/team-mem", 500, "failed calling webhook")
    await bench.reconcile(3)
    assert "failed calling webhook" in bench.api.condition("Ready")["message"]


async def test_the_text_of_another_librarys_error_does_not_reach_the_status(bench: Bench) -> None:
    refuse_reads(bench, ValueError(DSN))
    await bench.reconcile(3)
    assert "ValueError" in bench.api.condition("Ready")["message"]
    assert "s3cret-pa55word" not in json.dumps(bench.api.index["status"])


@pytest.mark.finding("D26")
async def test_an_object_without_a_status_is_counted_until_it_has_one(bench: Bench) -> None:
    del bench.api.index["status"]
    series = {"namespace": "team", "name": "mem"}

    async def refused(*_: Any) -> None:
        raise KubeError("applying MemoryIndex team/mem", 403, "forbidden", refused=True)

    write, bench.api.replace_status = bench.api.replace_status, refused  # type: ignore[method-assign]
    await bench.reconcile()
    assert bench.sample("memory_operator_object_reported", **series) == 0
    bench.api.replace_status = write  # type: ignore[method-assign]
    await bench.reconcile()
    assert bench.sample("memory_operator_object_reported", **series) == 1


def events(bench: Bench) -> list[tuple[str, str]]:
    found = [item for (kind, _, _), item in bench.api.objects.items() if kind == "Event"]
    return [(event["type"], event["reason"]) for event in found]


async def settle(bench: Bench) -> None:
    """Reconcile until the object is ready, by Deployments that serve at once."""
    bench.database = FULL
    await bench.reconcile()
    for name in ("mem-embedder", "mem-sync"):
        bench.api.objects["Deployment", "team", name]["status"] = {"readyReplicas": 1}
    await bench.reconcile()
    assert bench.api.condition("Ready")["status"] == "True"


async def test_changes_of_ready_and_of_stalled_are_events_and_nothing_is_said_twice(bench: Bench) -> None:
    await settle(bench)
    bench.database = Problem(Reason.POOLER_REFUSED, "a pooler.")
    await bench.reconcile(3)
    expected = [("Normal", "Starting"), ("Normal", "Ready"), ("Warning", "PoolerRefused")]
    assert [one for one in events(bench) if one != ("Normal", "NotStalled")] == expected
    bench.database = FULL
    await bench.reconcile(3)
    assert ("Normal", "NotStalled") in events(bench)


async def test_started_and_failed_jobs_are_events(bench: Bench) -> None:
    bench.database = replace(FULL, schema_revision="0000")
    await bench.reconcile()
    ((name, job),) = [(key[2], item) for key, item in bench.api.objects.items() if key[0] == "Job"]
    assert ("Normal", "JobStarted") in events(bench)
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z", "message": "m"}
    job["status"] = {"conditions": [failed]}
    await bench.reconcile()
    assert ("Warning", "JobFailed") in events(bench)
    assert any(name in item["message"] for item in bench.api.objects.values() if item.get("kind") == "Event")
    bench.api.created.clear()
    await bench.reconcile(2)
    assert bench.api.created == [], "it is not even sent again"


async def test_a_restart_does_not_warn_again_of_a_job_that_failed_long_ago(bench: Bench, world: World) -> None:
    """The last failed migration stays for ever beside the one that succeeded after it."""
    bench.database = replace(FULL, schema_revision="0000")
    await bench.reconcile()
    (job,) = [item for (kind, _, _), item in bench.api.objects.items() if kind == "Job"]
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": world.now.isoformat(), "message": "m"}
    job["status"] = {"conditions": [failed]}
    world.now += timedelta(hours=1)
    await bench.reconcile()
    assert ("Warning", "JobFailed") not in events(bench)


async def test_an_event_that_cannot_be_created_disturbs_nothing(bench: Bench) -> None:
    async def refused(_: Any) -> None:
        raise KubeError("creating Event team/mem.x", 403, "forbidden", refused=True)

    bench.api.create = refused  # type: ignore[method-assign]
    await settle(bench)


def status(ready: str, stalled: str = "False", reason: str = "X") -> dict[str, Any]:
    given = {"Ready": ready, "Stalled": stalled}
    conditions = [{"type": k, "status": s, "reason": reason, "message": "m"} for k, s in given.items()]
    return {"conditions": conditions}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, status("Unknown"), []),
        (status("False"), status("False", reason="Y"), []),
        (status("Unknown"), status("False"), [("Normal", "X")]),
        (status("True"), status("False"), [("Warning", "X")]),
        (status("True"), status("Unknown"), [("Warning", "X")]),
        ({}, status("False", "True"), [("Warning", "X")]),
        (status("False", "True"), status("False", "True", reason="Y"), [("Warning", "Y")]),
        (status("False", "True"), status("False"), [("Normal", "X")]),
    ],
)
def test_an_event_tells_a_change_and_warns_of_what_was_lost(before: Any, after: Any, expected: Any) -> None:
    assert [(event.type, event.reason) for event in of_transitions(before, after)] == expected


def test_the_same_event_has_the_same_name_and_another_one_another(world: World) -> None:
    subject, gone = memory_index(world.manifest()), Event("Warning", "SecretMissing", "gone.")
    first = event_manifest(subject, gone, START)
    again = event_manifest(subject, gone, START + timedelta(minutes=1))
    other = event_manifest(subject, Event("Warning", "SecretMissing", "still gone."), START)
    assert first["metadata"]["name"] == again["metadata"]["name"] != other["metadata"]["name"]
    assert first["involvedObject"]["uid"] == "u-1"


async def test_an_event_that_exists_is_left_as_it_is(connect: Connect, world: World) -> None:
    answers = iter([Answer(201, {}), failure(409, "exists")])
    kube, sent = await connect(lambda _: next(answers))
    reporter = Reporter(kube, Metrics(), lambda: START)
    with capture_logs() as logs:
        for _ in range(2):
            await reporter.record(world.manifest(), [Event("Normal", "Ready", "Every row is embedded.")])
    assert logs == []
    assert [(one.method, one.path) for one in sent] == [("POST", "/api/v1/namespaces/team/events")] * 2


def test_rows_that_nobody_embeds_are_noticed_and_progress_counts_anew() -> None:
    tracker = IdleTracker()
    later = [START + timedelta(seconds=30 * step) for step in range(6)]
    assert tracker.observe(later[0], pending=0, done=9) is None
    assert tracker.observe(later[1], pending=1, done=9) == later[1]
    assert tracker.observe(later[2], pending=3, done=9) == later[1]
    assert tracker.observe(later[3], pending=3, done=10) == later[3]
    assert tracker.observe(later[4], pending=2, done=10) == later[4]
    assert tracker.observe(later[5], pending=0, done=12) is None


async def reconcile_second(bench: Bench) -> None:
    """Reconcile the second object, whose table is another one."""
    first, claim = bench.database, replace(CLAIM, name="second", uid="u-2")
    bench.database = replace(FULL, identity=IDENTITY, claim=claim)
    await bench.controller.reconcile_object(("team", "second"))
    bench.database = first


@pytest.mark.finding("D27")
async def test_a_new_default_image_is_rolled_out_to_one_object_after_the_other(bench: Bench) -> None:
    await settle(bench)
    other = json.loads(json.dumps(bench.api.index))
    other["metadata"] |= {"name": "second", "uid": "u-2"}
    bench.api.objects["MemoryIndex", "team", "second"] = other
    await reconcile_second(bench)
    for name in ("second-embedder", "second-sync"):
        bench.api.objects["Deployment", "team", name]["status"] = {"readyReplicas": 1}
    bench.controller.images = Images(operator="op:1", embedder="emb:2")
    for _ in range(2):
        await bench.reconcile()
        await reconcile_second(bench)
    assert image(bench, "mem-embedder") == "emb:2"
    assert image(bench, "second-embedder") == "emb:1"
    bench.api.objects["Deployment", "team", "mem-embedder"]["status"] = {"readyReplicas": 1}
    await bench.reconcile()
    await reconcile_second(bench)
    assert image(bench, "second-embedder") == "emb:2"


def image(bench: Bench, name: str) -> Any:
    return bench.api.objects["Deployment", "team", name]["spec"]["template"]["spec"]["containers"][0]["image"]


async def test_a_request_is_repeated_in_the_status_that_is_newer_than_it(bench: Bench) -> None:
    bench.api.index["metadata"]["annotations"] = {"memory-index.dev/reconcile-at": "2026-01-01T12:00:00Z"}
    await bench.reconcile()
    assert bench.api.index["status"]["lastHandledReconcileAt"] == "2026-01-01T12:00:00Z"
    assert base64.b64encode(DSN.encode()).decode() not in json.dumps(bench.api.index["status"])
    assert KEY == ("team", "mem")
