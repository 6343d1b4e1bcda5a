"""Which calls of the operator fail in a trial, and what the audit log says of its calls."""

import json
from pathlib import Path

import pytest

from tests.support.cluster.audit import AuditTail, requests
from tests.support.cluster.faults.points import (
    Call,
    Fault,
    Phase,
    Point,
    Recorder,
    describe,
    enumerate_points,
    sampled,
)

NAMESPACES = ("faults-1", "faults-db")


def audited(verb: str, resource: str, user: str = "operator", pod: str = "pod-1") -> str:
    entry = {
        "user": {"username": user, "extra": {"authentication.kubernetes.io/pod-name": [pod]}},
        "verb": verb,
        "objectRef": {"resource": resource, "namespace": "team", "name": "mem"},
        "requestReceivedTimestamp": "2026-01-01T12:00:00.000000Z",
    }
    return json.dumps(entry)


@pytest.mark.parametrize(
    ("method", "path", "watch", "expected"),
    [
        ("GET", "/api/v1/namespaces/faults-1/secrets/dsn", False, "GET /api/v1/namespaces/NAMESPACE/secrets/dsn"),
        (
            "PATCH",
            "/apis/batch/v1/namespaces/faults-1/jobs/life-migrate-0a1b2c3d",
            False,
            "PATCH /apis/batch/v1/namespaces/NAMESPACE/jobs/life-migrate-HASH",
        ),
        ("GET", "/apis/apps/v1/deployments", True, "WATCH /apis/apps/v1/deployments"),
        ("GET", "/x/namespaces/faults-db/databases", False, "GET /x/namespaces/NAMESPACE1/databases"),
    ],
)
def test_a_call_is_named_without_what_differs_between_lives(method: str, path: str, watch: bool, expected: str) -> None:
    assert describe(method, path, watch=watch, namespaces=NAMESPACES) == expected


def test_a_fault_is_injected_once_and_at_its_very_call() -> None:
    recorder = Recorder(Point(Call(Phase.CREATE, "PATCH x", 2), Fault.CONFLICT))
    assert recorder.count("PATCH x") is None
    recorder.phase = Phase.CREATE
    assert [recorder.count("PATCH x") for _ in range(3)] == [None, Fault.CONFLICT, None]
    assert recorder.hit


def test_points_are_all_faults_of_the_calls_that_every_life_makes_and_of_a_repeated_read_the_first_counts() -> None:
    read, again = Call(Phase.CREATE, "GET x"), Call(Phase.CREATE, "GET x", 2)
    first, second = Call(Phase.CREATE, "PATCH y"), Call(Phase.CREATE, "PATCH y", 2)
    chance = Call(Phase.CREATE, "PATCH z")
    points = enumerate_points([[read, again, first, second, chance], [read, again, first, second]])
    assert {point.call for point in points} == {read, first, second}
    assert len(points) == 3 * len(Fault)


def test_a_tenth_of_the_points_holds_every_fault() -> None:
    points = enumerate_points([[Call(Phase.CREATE, f"PATCH {number:02}") for number in range(30)]])
    chosen = sampled(points, 0.1)
    assert len(chosen) == 21
    assert {point.fault for point in chosen} == set(Fault)


def test_renewals_of_the_lease_are_no_writes_and_watches_no_reads() -> None:
    lines = [audited("get", "secrets"), audited("watch", "pods"), audited("update", "leases"), audited("patch", "jobs")]
    found = list(requests(lines, user="operator"))
    assert [one.verb for one in found if one.reads] == ["get"]
    assert [one.target for one in found if one.writes] == ["jobs/team/mem"]


def test_the_log_is_read_from_where_it_ended_by_whole_lines_and_beyond_its_rotation(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(audited("get", "before") + "\n")
    tail = AuditTail(log, "operator")
    line = audited("patch", "jobs")
    with log.open("a") as file:
        file.write(audited("get", "secrets", user="somebody") + "\n" + line[:20])
        file.flush()
        assert tail.read() == []
        file.write(line[20:] + "\n")
        file.flush()
        assert [one.verb for one in tail.read()] == ["patch"]
    log.rename(tmp_path / "audit-1.log")
    log.write_text(audited("delete", "jobs") + "\n")
    assert [one.verb for one in tail.read()] == ["delete"]
    tail.close()
