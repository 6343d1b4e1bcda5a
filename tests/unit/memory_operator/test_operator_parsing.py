"""Parsing of objects of the API: complete, partial and malformed ones."""

import base64
import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import InvalidSpecError, parse
from memory_operator.clients import object_facts
from memory_operator.reconcile.facts import Credentials, JobState, Problem
from tests.unit.memory_operator.conftest import START, World

PASSWORD = "s3cret-pa55word"


def secret(**data: str) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}}


def test_a_secrets_key_is_decoded() -> None:
    assert object_facts.secret_value(secret(uri="text\n"), "team/dsn", "uri") == "text"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, Reason.SECRET_MISSING),
        ({}, Reason.SECRET_KEY_MISSING),
        (secret(other=PASSWORD), Reason.SECRET_KEY_MISSING),
        ({"data": {"uri": "///not base64///"}}, Reason.SECRET_INVALID),
        ({"data": {"uri": base64.b64encode(b"\xff\xfe").decode()}}, Reason.SECRET_INVALID),
    ],
)
def test_an_unusable_secret_is_reported_without_its_values(given: Any, reason: Reason) -> None:
    problem = object_facts.secret_value(given, "team/dsn", "uri")
    assert isinstance(problem, Problem)
    assert problem.reason is reason
    assert "team/dsn" in problem.message
    assert PASSWORD not in problem.message


def test_of_a_secret_with_the_keys_of_several_callers_the_first_is_sent() -> None:
    """It is the Secret that the embedder reads, in which a key is rotated by a further line."""
    given = secret(key="ours\ntheirs\n")
    assert object_facts.api_key(given, "team/embedder", "key", named_by="spec.embedder.apiKey") == "ours"


@pytest.mark.parametrize("key", ["\n", "clé", "one\ttwo"], ids=["no key", "not ASCII", "a tab"])
def test_a_key_that_cannot_be_sent_is_a_problem_of_its_secret(key: str) -> None:
    problem = object_facts.api_key(secret(key=key), "team/embedder", "key", named_by="spec.embedder.apiKey")
    assert isinstance(problem, Problem)
    assert problem.reason is Reason.SECRET_INVALID
    assert "team/embedder" in problem.message
    assert key.strip() not in problem.message or not key.strip()


@pytest.mark.promise("malformed-uri-unquoted")
@pytest.mark.finding("M8")
def test_a_missing_keys_message_lists_no_other_keys() -> None:
    problem = object_facts.secret_value(secret(DATABASE_URL="x", user="y"), "team/dsn", "uri")
    assert isinstance(problem, Problem)
    assert "no key uri" in problem.message
    assert "DATABASE_URL" not in problem.message


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
def test_a_connection_uri_is_reduced_to_what_is_no_secret(scheme: str) -> None:
    uri = f"{scheme}://us%40er:{PASSWORD}@pg-rw.dbaas:5432/app?sslmode=require"
    found = object_facts.credentials(uri, "team/dsn", "uri")
    assert found == Credentials("app", (5432,), "us@er")


@pytest.mark.promise("malformed-uri-unquoted")
@pytest.mark.finding("M8")
@pytest.mark.parametrize("uri", ["", "nonsense", f"host=x password={PASSWORD}", f"mysql://u:{PASSWORD}@h/d",
                                 f"postgresql://u:{PASSWORD}@h", f"postgresql://u:{PASSWORD}@[::/d",
                                 f"postgresql://u:p@h/{PASSWORD}@pg/app", f"postgresql://u:p@h/{PASSWORD}?x@pg/app",
                                 f"postgresql://u:p@h/{PASSWORD}#x@pg/app",
                                 f"postgresql://u:p@h/{PASSWORD}/app"])  # fmt: skip
def test_an_invalid_connection_uri_is_refused_without_being_quoted(uri: str) -> None:
    problem = object_facts.credentials(uri, "team/dsn", "uri")
    assert isinstance(problem, Problem)
    assert problem.reason is Reason.SECRET_INVALID
    assert PASSWORD not in problem.message


def cluster(**status: Any) -> dict[str, Any]:
    base = {"phase": object_facts.HEALTHY_PHASE, "currentPrimary": "pg-1", "targetPrimary": "pg-1"}
    return {"metadata": {"namespace": "dbaas", "name": "pg"}, "status": base | status}


def test_a_cluster_is_healthy_only_in_its_healthy_phase_with_one_primary() -> None:
    assert object_facts.cluster_facts(cluster()).healthy
    assert not object_facts.cluster_facts(cluster(phase="Failing over")).healthy
    assert not object_facts.cluster_facts(cluster(targetPrimary="pg-2")).healthy
    assert not object_facts.cluster_facts({"metadata": {"namespace": "dbaas", "name": "pg"}}).healthy


@pytest.mark.parametrize(
    ("replica", "expected"),
    [
        (None, False),
        ({"enabled": True, "source": "origin"}, True),
        ({"enabled": False, "source": "origin"}, False),
        ({"primary": "pg", "source": "origin"}, False),
        ({"primary": "origin", "source": "origin"}, True),
        ({"primary": "here", "self": "here", "source": "origin"}, False),
    ],
)
def test_a_replica_cluster_is_recognised_by_its_flag_or_its_topology(replica: Any, expected: bool) -> None:
    item = cluster() | {"spec": {"replica": replica} if replica else {}}
    assert object_facts.cluster_facts(item).replica is expected
    assert object_facts.cluster_facts(item).answers is not expected


def test_annotations_of_a_cluster_are_honoured() -> None:
    item = cluster()
    item["metadata"]["annotations"] = {"cnpg.io/hibernation": "on", "cnpg.io/reconciliationLoop": "disabled"}
    facts = object_facts.cluster_facts(item)
    assert facts.hibernated
    assert facts.reconciliation_disabled


def test_a_database_object_without_status_is_unknown_rather_than_failed() -> None:
    item = {"metadata": {"namespace": "dbaas", "name": "d", "generation": 1}, "spec": {"owner": "o"}}
    found = object_facts.database_object(item)
    assert found.applied is None
    assert not found.settled


def test_an_older_generation_that_was_applied_is_not_settled() -> None:
    item = {
        "metadata": {"namespace": "dbaas", "name": "d", "generation": 2},
        "spec": {"owner": "o"}, "status": {"applied": True, "observedGeneration": 1},
    }  # fmt: skip
    assert not object_facts.database_object(item).settled


def job(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "mem-migrate-1", "annotations": {"memory-index.dev/sequence": "2"},
            "labels": {"app.kubernetes.io/component": "migrate", "memory-index.dev/config": "abc"},
        },
        "status": status,
    }  # fmt: skip


FAILED = {
    "conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z", "message": "m"}]
}


def ended(
    message: str | None, code: int = 4, at: str = "2026-01-01T12:00:00Z", of: str = "mem-migrate-1"
) -> dict[str, Any]:
    terminated = {"exitCode": code, "finishedAt": at, **({"message": message} if message else {})}
    return {
        "metadata": {"labels": {"job-name": of}},
        "status": {"containerStatuses": [{"state": {"terminated": terminated}}]},
    }


def test_a_running_job_is_active() -> None:
    facts = object_facts.job_facts(job(active=1), [])
    assert (facts.state, facts.sequence, facts.config, facts.failure) == (JobState.ACTIVE, 2, "abc", None)


def test_the_termination_message_of_a_failed_job_is_its_failure() -> None:
    pods = [
        ended(json.dumps({"reason": "SchemaUnsupported", "message": "no column content"}), at="2026-01-01T12:00:09Z"),
        ended(json.dumps({"reason": "DatabaseUnreachable", "message": "early"}), at="2026-01-01T12:00:01Z"),
        ended(
            json.dumps({"reason": "DimensionMismatch", "message": "other job"}), of="another", at="2026-01-01T12:00:10Z"
        ),
    ]
    facts = object_facts.job_facts(job(**FAILED), pods)
    assert facts.failure == Problem(Reason.SCHEMA_UNSUPPORTED, "no column content", "")


@pytest.mark.parametrize("message", [None, "not json", "[]", '"text"', '{"reason": "X"}', "null"])
def test_a_failed_job_without_a_termination_message_reports_its_exit_status(message: str | None) -> None:
    facts = object_facts.job_facts(job(**FAILED), [ended(message, code=1)])
    assert facts.failure == Problem(Reason.JOB_FAILED, "its last pod ended with status 1.")


def test_an_unknown_reason_of_a_worker_becomes_a_known_one_and_is_quoted() -> None:
    facts = object_facts.job_facts(job(**FAILED), [ended(json.dumps({"reason": "Novel", "message": "text"}))])
    assert facts.failure == Problem(Reason.JOB_FAILED, "Novel: text", "")


def test_a_failed_job_without_pods_reports_the_job_controllers_message() -> None:
    assert object_facts.job_facts(job(**FAILED), []).failure == Problem(Reason.JOB_FAILED, "m")


def pod(**status: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": "embedder"}
    return {"metadata": {"namespace": "team", "name": "mem-embedder-x", "labels": labels}, "status": status}


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    container = {
        "name": "embedder",
        "image": "emb:1",
        "state": {"waiting": {"reason": reason, "message": message}},
        **more,
    }
    return pod(containerStatuses=[container])


def last_state(code: int, message: str = "", seconds: int = 2) -> dict[str, Any]:
    terminated = {
        "exitCode": code, "message": message,
        "startedAt": "2026-01-01T12:00:00Z", "finishedAt": f"2026-01-01T12:{seconds // 60:02}:{seconds % 60:02}Z",
    }  # fmt: skip
    return {"terminated": terminated}


def problem_of(item: dict[str, Any]) -> Problem | None:
    return object_facts.pod_facts(item).problem


def test_the_schedulers_message_is_passed_on() -> None:
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient nvidia.com/gpu"}
    ]
    problem = problem_of(pod(conditions=conditions))
    assert problem is not None
    assert problem.reason is Reason.UNSCHEDULABLE
    assert "team/mem-embedder-x" in problem.message
    assert "Insufficient nvidia.com/gpu" in problem.message


def test_both_of_the_kubelets_messages_for_a_failing_pull_give_one_problem() -> None:
    first = problem_of(waiting("ErrImagePull", "failed to pull: manifest unknown: not found"))
    second = problem_of(waiting("ImagePullBackOff", 'Back-off pulling image "emb:1": ErrImagePull: not found'))
    assert first == second
    assert first is not None
    assert first.message == "Pod team/mem-embedder-x cannot pull image emb:1: it is not there."


def test_a_crash_loop_quotes_the_termination_message_also_between_two_back_offs() -> None:
    words = json.dumps({"reason": "GpuNotUsed", "message": "no CUDA device"})
    backing_off = problem_of(waiting("CrashLoopBackOff", lastState=last_state(4, words), restartCount=5))
    running = {"name": "embedder", "state": {"running": {}}, "lastState": last_state(4, words), "restartCount": 5}
    between = problem_of(pod(containerStatuses=[running]))
    assert backing_off is not None
    assert backing_off.reason is Reason.GPU_NOT_USED
    assert "no CUDA device" in backing_off.message
    assert between == backing_off


def test_a_pod_that_restarted_after_a_long_life_is_no_crash_loop() -> None:
    running = {
        "name": "embedder",
        "state": {"running": {}},
        "lastState": last_state(137, seconds=900),
        "restartCount": 5,
    }
    assert problem_of(pod(containerStatuses=[running])) is None


def killed(seconds: int = 2) -> dict[str, Any]:
    """The last state of a container that needed more memory than its limit allows."""
    found = last_state(137, seconds=seconds)
    found["terminated"]["reason"] = "OOMKilled"
    return found


@pytest.mark.parametrize("seconds", [2, 900], ids=["at once", "after a while"])
@pytest.mark.parametrize("state", [{"running": {}}, {"waiting": {"reason": "CrashLoopBackOff"}}], ids=str)
def test_a_container_that_is_killed_at_its_memory_limit_is_named_with_the_limit_until_it_is_ready(
    state: dict[str, Any], seconds: int
) -> None:
    """Nothing stands in its log, and after a long life it would seem to start."""
    container = {"name": "embedder", "state": state, "lastState": killed(seconds), "restartCount": 1}
    problem = object_facts.pod_facts(pod(containerStatuses=[container]), limits={"embedder": "512Mi"}).problem
    assert problem is not None
    assert problem.reason is Reason.OOM_KILLED
    assert "team/mem-embedder-x" in problem.message
    assert "container embedder was killed at its memory limit of 512Mi" in problem.message
    assert "spec.embedder.resources.limits.memory" in problem.remedy
    assert problem_of(pod(containerStatuses=[{**container, "ready": True}])) is None


@pytest.mark.parametrize(
    ("component", "container", "remedy"),
    [
        ("embedder-next", "embedder", "Raise spec.embedder.resources.limits.memory."),
        ("backfill", "memory", "Raise spec.backfill.resources.limits.memory."),
        ("swap", "memory", "Raise spec.backfill.resources.limits.memory."),
        ("sync", "memory", "No field of spec raises this limit, which is the operator's own: report an issue."),
        ("fetch", "fetch", "No field of spec raises this limit, which is the operator's own: report an issue."),
        ("embedder", "istio-proxy", ""),
    ],
)
def test_the_remedy_of_a_memory_limit_is_the_field_that_sets_it(component: str, container: str, remedy: str) -> None:
    status = {"name": container, "state": {"running": {}}, "lastState": killed()}
    item = pod(containerStatuses=[status])
    item["metadata"]["labels"] = {"app.kubernetes.io/component": component}
    problem = object_facts.pod_facts(item, limits={component: "1Gi"}).problem
    assert problem is not None
    assert problem.remedy == remedy
    assert ("1Gi" in problem.message) is (container != "istio-proxy"), "it is the limit of the operator's container"


def test_a_job_whose_last_pod_was_killed_at_its_memory_limit_says_so() -> None:
    backfill = job(**FAILED)
    backfill["metadata"]["labels"]["app.kubernetes.io/component"] = "backfill"
    container = {"name": "memory", "resources": {"limits": {"memory": "512Mi"}}}
    backfill["spec"] = {"template": {"spec": {"containers": [container]}}}
    earlier = ended(json.dumps({"reason": "EmbedderBusy", "message": "early"}), at="2026-01-01T12:00:01Z")
    last = ended(None, code=137, at="2026-01-01T12:00:09Z")
    last["status"]["containerStatuses"][0] |= {"name": "memory"}
    last["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = "OOMKilled"
    assert object_facts.job_facts(backfill, [last, earlier]).failure == Problem(
        Reason.OOM_KILLED,
        "container memory was killed at its memory limit of 512Mi.",
        "Raise spec.backfill.resources.limits.memory.",
    )


def test_a_model_that_cannot_be_copied_has_another_reason_than_a_crash() -> None:
    container = {
        "name": "copy-model",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": last_state(1),
    }
    problem = problem_of(pod(initContainerStatuses=[container]))
    assert problem is not None
    assert problem.reason is Reason.MODEL_NOT_VERIFIED


@pytest.mark.parametrize(
    ("phase", "ended"), [("Running", False), ("Pending", False), ("Succeeded", True), ("Failed", True)]
)
def test_a_pod_that_has_ended_is_recognised(phase: str, ended: bool) -> None:
    assert object_facts.pod_facts(pod(phase=phase)).ended is ended


@pytest.mark.parametrize(
    ("phase", "ready", "since"), [("Running", "False", START), ("Running", "True", None), ("Pending", "False", None)]
)
def test_only_a_pod_that_runs_without_being_ready_is_unready_since_a_time(
    phase: str, ready: str, since: datetime | None
) -> None:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": START.isoformat()}]
    assert object_facts.pod_facts(pod(phase=phase, conditions=conditions)).unready_since == since


def test_the_time_in_which_its_image_was_pulled_does_not_count_for_a_pod_that_is_not_ready() -> None:
    begun = START + timedelta(minutes=5)
    conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": START.isoformat()}]
    containers = [{"name": "sync", "state": {"running": {"startedAt": begun.isoformat()}}}]
    found = object_facts.pod_facts(pod(phase="Running", conditions=conditions, containerStatuses=containers))
    assert found.unready_since == begun


def test_a_healthy_pod_has_no_problem() -> None:
    container = {"name": "embedder", "ready": True, "state": {"running": {}}}
    assert problem_of(pod(containerStatuses=[container])) is None
    assert problem_of(pod()) is None


def test_an_invalid_specification_is_refused_with_the_field_and_without_its_value(world: World) -> None:
    manifest = world.manifest()
    manifest["spec"]["embedder"]["minReplicas"] = PASSWORD
    with pytest.raises(InvalidSpecError) as caught:
        parse(manifest)
    assert "spec.embedder.minReplicas" in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None


def test_unknown_fields_of_a_newer_definition_are_ignored(world: World) -> None:
    manifest = world.manifest(novel={"a": 1})
    assert parse(manifest).name == "mem"


def test_the_credentials_default_to_the_secret_that_cloudnativepg_writes(world: World) -> None:
    manifest = world.manifest()
    del manifest["spec"]["database"]["credentials"]
    index = parse(manifest)
    assert (index.secret_name, index.spec.database.credentials.key) == ("pg-app", "uri")
