"""The exit status and the last line of the demo follow from its results."""

import json
from dataclasses import replace

import pytest

from devcluster.demo.verdict import Counts, Outcome, Recall, as_json, problems

GOOD = Outcome(
    cluster="node",
    seconds=123.456,
    ready=True,
    counts=Counts(rows=420, embedded=398, sensitive=20, sensitive_embedded=0, deleted=2),
    recall=Recall(lexical=0.6, dense=0.5, hybrid=0.7),
)


def test_a_run_that_meets_every_expectation_has_no_problem() -> None:
    assert problems(GOOD) == ()


def test_hybrid_equal_to_lexical_is_good_enough() -> None:
    assert problems(replace(GOOD, recall=Recall(lexical=0.6, dense=0.1, hybrid=0.6))) == ()


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        (replace(GOOD, ready=False), "did not become ready"),
        (replace(GOOD, counts=None), "not counted"),
        (replace(GOOD, recall=None), "not measured"),
        (replace(GOOD, counts=Counts(420, 397, 20, 0, 2)), "397 rows have a vector, 398 should"),
        (replace(GOOD, counts=Counts(420, 398, 20, 1, 2)), "1 sensitive rows have a vector"),
        (replace(GOOD, recall=Recall(lexical=0.6, dense=0.5, hybrid=0.59)), "below lexical"),
    ],
)
def test_each_unmet_expectation_is_reported(outcome: Outcome, problem: str) -> None:
    assert any(problem in one for one in problems(outcome))


def test_the_last_line_is_one_json_object_of_stable_keys() -> None:
    assert json.loads(as_json(GOOD)) == {
        "ready": True,
        "rows": 420,
        "embedded": 398,
        "sensitive": 20,
        "sensitive_embedded": 0,
        "recall@10": {"lexical": 0.6, "dense": 0.5, "hybrid": 0.7},
        "cluster": "node",
        "seconds": 123.5,
    }
    assert "\n" not in as_json(GOOD)


def test_a_result_that_was_not_reached_is_null() -> None:
    found = json.loads(as_json(Outcome(cluster=None, seconds=1.0)))
    assert found["ready"] is False
    assert found["rows"] is None
    assert found["recall@10"] is None
    assert found["cluster"] is None
