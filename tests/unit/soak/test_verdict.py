"""A run passes only if nothing was wrong and enough was seen."""

import copy
from typing import Any

import pytest

from tests.soak.verdict import failures

STORE = {"rows": 300, "lost": 0, "pending": 0}
GOOD: dict[str, Any] = {
    "minutes": 1.0, "faults": 10, "recalls": 100, "refused": 20, "leaks": 0, "stale": 0, "lost": 0, "late": 0,
    "consent_exceeded": 0, "other": 0, "logged": 0, "slopes": [], "longest_recall_s": 60.0, "ready_after_s": 599.0,
    "details": {
        "not_ready": [], "incomplete": [], "planned": {"kill": 20, "pause": 4, "switchover": 4},
        "happened": {"kill": 20, "pause": 2, "switchover": 1},
        "looks": {"objects": 1, "metrics of sync": 1},
        "users": {
            "texts_seen_in_requests": {"plain": 9}, "packets_missed": 0, "checks": {"plain": 3},
            "recalls_of": {"plain": {"answered": 60, "degraded": 30, "refused": 10}}, "answered_again": ["plain"],
            "found_of": {"plain": 15}, "written": {"plain": 40},
            "stores": {"plain": STORE},
        },
    },
}  # fmt: skip


def test_a_run_in_which_all_was_seen_and_nothing_was_wrong_passes_however_long_it_took() -> None:
    assert failures(GOOD) == []


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("leaks",), 1, "sensitive"),
        (("stale",), 2, "former text"),
        (("lost",), 1, "gone"),
        (("late",), 1, "longer than their budget"),
        (("consent_exceeded",), 1, "consent"),
        (("other",), 1, "somebody else"),
        (("logged",), 1, "logs"),
        (("slopes",), ["memory of operator: 1, 2, 3"], "memory of operator"),
        (
            ("details", "happened"),
            {"kill": 20, "pause": 1, "switchover": 2},
            "only 1 of 4 happened, where at least 2 have to: pause",
        ),
        (
            ("details", "happened"),
            {"kill": 20, "pause": 4},
            "only 0 of 4 happened, where at least 1 have to: switchover",
        ),
        (("details", "happened"), {"kill": 15, "pause": 3, "switchover": 4}, "only 22 of 28 faults"),
        (("details", "users", "recalls_of"), {"plain": {"answered": 5, "degraded": 5}}, "plain no more than half"),
        (("details", "users", "recalls_of"), {"plain": {"answered": 5, "degraded": 9}}, "plain no more than half"),
        (("details", "users", "recalls_of"), {"plain": {"answered": 5, "refused": 9}}, "plain no more than half"),
        (("details", "users", "answered_again"), ["other"], "no recall in plain was answered by meaning once"),
        (("details", "not_ready"), ["soak-plain"], "soak-plain did not become Ready"),
        (("details", "incomplete"), ["swap to custom"], "swap to custom"),
        (("details", "looks", "metrics of sync"), 0, "no look for texts into metrics of sync"),
        (("details", "users", "texts_seen_in_requests"), {"other": 9}, "no text of plain was seen"),
        (("details", "users", "found_of"), {"plain": 14, "other": 60}, "in plain less than a quarter"),
        (("details", "users", "recalls_of"), {"plain": {"answered": 9}}, "9 recalls in plain in 1 minutes"),
        (("details", "users", "written"), {"plain": 39, "other": 40}, "39 writes in plain in 1 minutes"),
        (("details", "users", "packets_missed"), 3, "3 packets"),
        (("details", "users", "checks"), {"plain": 1}, "plain was looked at 1 times in 1 minutes"),
        (("details", "users", "stores", "plain", "pending"), 4, "4 rows of plain"),
        (("details", "users", "stores", "plain", "rows"), 0, "no row"),
    ],
)
def test_each_thing_that_is_wrong_or_was_not_seen_fails_it_alone(
    path: tuple[str, ...], value: object, reason: str
) -> None:
    figures = copy.deepcopy(GOOD)
    *parents, last = path
    node = figures
    for parent in parents:
        node = node[parent]
    node[last] = value
    (only,) = failures(figures)
    assert reason in only
