"""The figures of `make e2e-client`: what counts as an error, as an answer by meaning, and as fulfilled."""

from dataclasses import replace

import pytest

from tests.client.conversation import Findings
from tests.client.figures import Observed, Span, shortcomings, summarize
from tests.client.inside import Request
from tests.client.own_tests import OwnTests, passed_tests

GREEN = OwnTests(frozenset({"a", "b"}), frozenset({"a", "b"}))
ROUND = Findings(found=32, asked=32, links_kept=True, sensitive_texts=0)


def asked(began: float, *, seconds: float = 0.02, answered: bool = True, semantic: bool = True) -> Request:
    return Request(began, seconds, answered=answered, semantic=semantic, sensitive_texts=0)


FINE = Observed(
    requests=[*(asked(second) for second in range(100)), asked(55.5, answered=False, semantic=False, seconds=1.9)],
    calm=[Span(0, 20), Span(80, 100)],
    failover=Span(50, 60),
    rounds=[ROUND, ROUND],
    elsewhere=0,
    patch_lines=30,
    rows_for_unanswerable={"everything": 5.0, "likely": 0.2},
    own_tests=GREEN,
)


def test_a_refusal_within_the_failover_is_no_error() -> None:
    """And nothing is missing where everything is as it should be."""
    figures = summarize(FINE)
    assert (figures["recall_errors"], figures["refused_in_failover"]) == (0, 1)
    assert (figures["longest_s"], figures["semantic_answers"], figures["p95_ms"]) == (1.9, 1.0, 20.0)
    assert shortcomings(figures, GREEN) == []


@pytest.mark.parametrize(
    ("changed", "claim"),
    [
        (replace(FINE, requests=[*FINE.requests, asked(30, answered=False)]), "no error outside"),
        (replace(FINE, requests=[*FINE.requests, asked(55, answered=False, seconds=2.1)]), "no request longer"),
        (replace(FINE, requests=[asked(5, semantic=False), asked(6), asked(90)]), "by meaning"),
        (replace(FINE, rounds=[ROUND, replace(ROUND, links_kept=False)]), "links kept"),
        (replace(FINE, rounds=[replace(ROUND, sensitive_texts=1)]), "sensitive"),
        (replace(FINE, elsewhere=1), "sensitive"),
        (replace(FINE, patch_lines=31), "a patch"),
        (replace(FINE, rows_for_unanswerable={"everything": 5.0, "likely": 5.0}), "fewer memories"),
        (replace(FINE, own_tests=OwnTests(frozenset({"a"}), frozenset({"b"}))), "own tests"),
    ],
)
def test_each_promise_that_is_not_kept_is_named(changed: Observed, claim: str) -> None:
    missing = shortcomings(summarize(changed), changed.own_tests)
    assert len(missing) == 1
    assert claim in missing[0]


def test_a_lexical_answer_while_something_recovers_is_as_promised() -> None:
    figures = summarize(replace(FINE, requests=[*FINE.requests, *(asked(30 + n, semantic=False) for n in range(9))]))
    assert figures["semantic_answers"] == 1.0


def test_only_tests_that_passed_count_as_passed() -> None:
    report = (
        '<testsuites><testsuite><testcase classname="t" name="good"/><testcase classname="t" name="bad"><failure/>'
        '</testcase><testcase classname="t" name="left_out"><skipped/></testcase></testsuite></testsuites>'
    )
    assert passed_tests(report) == {"t::good"}
