"""The last line of the swap benchmark counts what a flip may do wrong only where there was a flip."""

import json
from pathlib import Path
from typing import Any

import pytest

from memory_bench.swap.light import LightDetector, LightSetting
from memory_bench.swap.load import Recalled
from memory_bench.swap.results import headline
from memory_recall.evaluation.evaluate import parse_questions
from tests.support.labelled_set import questions

WRONG = {"active": 3, "standby": 2, "private": 1}
REFUSED = {"status": 4, "said": "SwapRefused"}
FLIPPED = {
    "errors": [],
    "cross_space": 10,
    "semantic_gap_s": 0.1,
    "flipped": True,
    "instrument_sees_crossing": True,
    "wrong_rows": WRONG,
    "swaps": {"bad": REFUSED, "good": {"status": 0, "said": ""}},
}
NOT_FLIPPED = {
    **FLIPPED,
    "flipped": False,
    "instrument_sees_crossing": None,
    "wrong_rows": None,
    "swaps": {"bad": REFUSED, "good": {"status": 5, "said": "SwapUndecided"}},
}


@pytest.mark.parametrize(
    ("results", "errors", "crossings", "why"),
    [
        (FLIPPED, 0, 16, None),
        (NOT_FLIPPED, 1, None, "SwapUndecided"),
        ({**FLIPPED, "instrument_sees_crossing": False}, 1, 16, None),
        ({**FLIPPED, "errors": ["sync: ended by itself with status 1"]}, 1, 16, None),
    ],
    ids=["a flip", "no flip", "an instrument that sees nothing", "a worker that ended"],
)
def test_crossings_are_counted_only_of_a_flip_that_happened(
    results: dict[str, Any], errors: int, crossings: int | None, why: str | None
) -> None:
    found = headline(results)
    assert (found["errors"], found["cross_space"], found.get("not_flipped")) == (errors, crossings, why)


def test_the_gate_asks_400_questions_about_the_light_models() -> None:
    assert len({line["query_id"] for line in LightSetting(500).memories.questions}) == 400


def test_the_questions_about_the_real_models_are_those_of_the_example_set() -> None:
    """With their judgements, in the form that the gate reads."""
    homelab = Path(__file__).parents[3] / "examples/homelab"
    parsed = parse_questions(json.dumps(line) for line in questions(homelab))
    assert len(parsed) == len((homelab / "queries.jsonl").read_text().splitlines())


def test_a_negative_cosine_of_light_models_is_a_crossing() -> None:
    assert LightDetector().crossings(Recalled("q", 0, 0, None, (("a", 0.7), ("b", -0.5)))) == 1
