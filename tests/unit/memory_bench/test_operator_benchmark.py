"""The pure parts of the operator's benchmark: fault points, the audit log, and the line of figures."""

import json
from pathlib import Path
from typing import Any

import pytest

from memory_bench.operator.parts import KEYS, PARTS, PartResult
from memory_bench.operator.results import WITHIN, failures, headline, write
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


def test_the_line_has_exactly_its_keys_and_none_where_a_part_did_not_run() -> None:
    line = headline({"scale": PartResult({"rss_mb": 90})})
    assert tuple(line) == KEYS
    assert {key: value for key, value in line.items() if value is not None} == {"rss_mb": 90}


def test_a_later_run_of_one_part_keeps_what_the_others_measured(tmp_path: Path) -> None:
    write(tmp_path, {"recovery": PartResult({"recovery_s": 9.5}), "hostile": PartResult({"takeovers": 0})},
          {"recovery": 60.0, "hostile": 30.0})  # fmt: skip
    write(tmp_path, {"recovery": PartResult({"recovery_s": 7.5})}, {"recovery": 50.0})
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["headline"]["recovery_s"], summary["headline"]["takeovers"]) == (7.5, 0)
    assert {name: part["seconds"] for name, part in summary["parts"].items()} == {"recovery": 50.0, "hostile": 30.0}


GOOD: dict[str, Any] = {
    "takeovers": 0, "hostile": 12, "namespaces_deleted": "12/12", "lies": 0, "situations": 60, "fault_points": 150,
    "fault_points_converged": 150, "edit_latency_500_vs_10": 3, "reads_per_min_settled_500": 1200,
    "writes_per_min_settled": 0, "rss_mb": 200, "restart_to_all_seen_s": 60, "recovery_s": 60, "leaders": 1,
    "withdrawals": {"tried": 6, "longest_s": 60, "texts_after": 0},
    "hostile_tenants": {"inputs": 40, "longest_loop_pause_ms": 500, "other_tenants_delay_s": 1, "restarts": 0},
    "tls": {"verified": True, "wrong_ca_refused": True, "rotations_under_load": 1, "recall_errors": 0},
    "admission": {"mutations": 6, "ready": "all", "applies_per_min_settled": 0},
    "copies": {"situations": 4, "wrong_database_touched": 0},
}  # fmt: skip
BAD = {
    "takeovers": 1, "hostile": 11, "namespaces_deleted": "11/12", "lies": 1, "situations": 59, "fault_points": 149,
    "fault_points_converged": 149, "edit_latency_500_vs_10": 3.1, "reads_per_min_settled_500": 1201,
    "writes_per_min_settled": 1, "rss_mb": 201, "restart_to_all_seen_s": 60.1, "recovery_s": 60.1, "leaders": 2,
    "withdrawals": {"tried": 5, "longest_s": 60.1, "texts_after": 1},
    "hostile_tenants": {"inputs": 39, "longest_loop_pause_ms": 501, "other_tenants_delay_s": 1.1, "restarts": 1},
    "tls": {"verified": False, "wrong_ca_refused": False, "rotations_under_load": 0, "recall_errors": 1},
    "admission": {"mutations": 5, "ready": "4/5", "applies_per_min_settled": 1},
    "copies": {"situations": 3, "wrong_database_touched": 1},
}  # fmt: skip


def test_a_line_within_all_limits_fails_nothing() -> None:
    assert failures(GOOD, share=1.0) == []


@pytest.mark.parametrize("key", KEYS)
def test_each_figure_beyond_its_limit_fails_the_benchmark(key: str) -> None:
    assert failures({**GOOD, key: BAD[key]}, share=1.0)


@pytest.mark.parametrize(("key", "name"), [(key, name) for key in WITHIN for name in WITHIN[key]])
def test_each_part_of_a_figure_beyond_its_limit_fails_the_benchmark(key: str, name: str) -> None:
    (line,) = failures({**GOOD, key: GOOD[key] | {name: BAD[key][name]}}, share=1.0)
    assert line.startswith(f"{key}.{name} is ")


def test_an_object_that_does_not_become_ready_under_admission_fails_the_benchmark() -> None:
    assert failures({**GOOD, "admission": GOOD["admission"] | {"ready": "5/6"}}, share=1.0)


def test_a_sample_of_the_fault_points_need_not_be_as_many() -> None:
    assert failures({**GOOD, "fault_points": 40, "fault_points_converged": 40}, share=0.1) == []


def test_every_part_says_how_long_it_takes() -> None:
    assert all(part.minutes > 0 for part in PARTS.values())
