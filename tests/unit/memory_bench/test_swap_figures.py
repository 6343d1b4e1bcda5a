"""The last line of the swap benchmark counts what a flip may do wrong only where there was a flip."""

from typing import Any

import pytest

from memory_bench.swap.results import headline

WRONG = {"active": 3, "standby": 2, "private": 1}
REFUSED = {"status": 4, "said": "SwapRefused"}
FLIPPED = {
    "errors": [],
    "cross_space": 10,
    "semantic_gap_s": 0.1,
    "flipped": True,
    "instrument_sees_crossing": True,
    "wrong_rows": WRONG,
    "swaps": {"bad": REFUSED, "second": {"status": 0, "said": ""}},
}
NOT_FLIPPED = {
    **FLIPPED,
    "flipped": False,
    "instrument_sees_crossing": None,
    "wrong_rows": None,
    "swaps": {"bad": REFUSED, "second": {"status": 5, "said": "SwapUndecided"}},
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
