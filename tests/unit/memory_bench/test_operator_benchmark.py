"""The line of figures of the operator's benchmark, and what of it fails a run."""

import json
from pathlib import Path
from typing import Any

import pytest

from memory_bench.operator.parts import KEYS, PARTS, PartResult
from memory_bench.operator.results import WITHIN, failures, headline, write


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
    "hostile_tenants": {"inputs": 40, "longest_loop_pause_ms": 500, "longest_loop_busy_ms": 500,
                        "other_tenants_delay_s": 1, "restarts": 0},
    "tls": {"verified": True, "wrong_ca_refused": True, "rotations_under_load": 1, "recall_errors": 0},
    "admission": {"mutations": 6, "ready": "all", "applies_per_min_settled": 0},
    "copies": {"situations": 4, "wrong_database_touched": 0},
}  # fmt: skip
BAD = {
    "takeovers": 1, "hostile": 11, "namespaces_deleted": "11/12", "lies": 1, "situations": 59, "fault_points": 149,
    "fault_points_converged": 149, "edit_latency_500_vs_10": 3.1, "reads_per_min_settled_500": 1201,
    "writes_per_min_settled": 1, "rss_mb": 201, "restart_to_all_seen_s": 60.1, "recovery_s": 60.1, "leaders": 2,
    "withdrawals": {"tried": 5, "longest_s": 60.1, "texts_after": 1},
    "hostile_tenants": {"inputs": 39, "longest_loop_pause_ms": 501, "longest_loop_busy_ms": 501,
                        "other_tenants_delay_s": 1.1, "restarts": 1},
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
