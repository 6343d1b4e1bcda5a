"""A swap's next act follows from facts alone, and its gate lets nothing pass that it could not measure."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_recall.swap.gate import Scores, judge, not_measurable
from memory_recall.swap.machine import OPEN_STAGES, TRANSITIONS, Act, Fill, Stage, SwapFacts, decide, path

FULL = Fill(wanted=1000, pending=0, quarantined=0)
DONE = SwapFacts(Stage.INDEXING, has_column=True, fill=FULL, index_valid=True, gated=True, passed=True)

facts = st.builds(
    SwapFacts,
    stage=st.sampled_from(Stage),
    has_column=st.booleans(),
    fill=st.builds(Fill, st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000)),
    index_valid=st.booleans(),
    gated=st.booleans(),
    passed=st.sampled_from([None, True, False]),
    flip_wanted=st.booleans(),
)


@pytest.mark.parametrize(
    ("changes", "act"),
    [
        ({"has_column": False}, Act.ADD_COLUMN),
        ({"fill": replace(FULL, pending=3)}, Act.FILL),
        ({"fill": replace(FULL, quarantined=11)}, Act.REFUSE),
        ({"index_valid": False}, Act.INDEX),
        ({"passed": None}, Act.MEASURE),
        ({"passed": False}, Act.REFUSE),
        ({}, Act.FLIP),
        ({"flip_wanted": False}, Act.REST),
        ({"gated": False, "passed": None}, Act.FLIP),
        ({"stage": Stage.REFUSED}, Act.REST),
        ({"stage": Stage.FLIPPED}, Act.REST),
    ],
)
def test_the_first_thing_that_is_missing_is_done_next(changes: dict[str, object], act: Act) -> None:
    """Whatever was interrupted is seen to be missing and done again."""
    assert decide(replace(DONE, **changes)) is act


@given(facts)
def test_nothing_flips_that_is_not_full_indexed_and_passed(given_facts: SwapFacts) -> None:
    """The one act that recalls notice has every condition before it."""
    if decide(given_facts) is Act.FLIP:
        assert given_facts.stage in OPEN_STAGES - {Stage.REFUSED}
        assert (given_facts.has_column, given_facts.index_valid, given_facts.fill.full) == (True, True, True)
        assert not given_facts.fill.refused
        assert given_facts.passed or not given_facts.gated


@given(st.sampled_from(Stage), st.sampled_from(Stage))
def test_a_path_is_lawful_and_leads_where_it_should(start: Stage, goal: Stage) -> None:
    """Each step is a transition, the last one reaches the goal, and neither refusal nor abortion lies between."""
    here = start
    way = path(start, goal)
    for stage in way:
        assert stage in TRANSITIONS[here]
        here = stage
    assert not way or here is goal
    assert not set(way[:-1]) & {Stage.REFUSED, Stage.ABORTED}


@pytest.mark.parametrize("stage", [Stage.PLANNED, Stage.FILLING, Stage.INDEXING, Stage.GATING])
def test_every_working_stage_can_reach_ready(stage: Stage) -> None:
    """Else a swap that was killed there could never end."""
    assert path(stage, Stage.READY)[-1] is Stage.READY


@pytest.mark.parametrize(
    ("active", "following", "passed", "reason"),
    [
        ((0.80, 0.70), (0.79, 0.70), True, "Passed"),
        ((0.80, 0.70), (0.90, 0.80), True, "Passed"),
        ((0.80, 0.70), (0.75, 0.70), False, "RecallDropped"),
        ((0.93, 0.93), (0.93, 0.00), False, "RecallDropped"),
        ((0.00, 0.00), (0.50, 0.50), False, "ActiveNotMeasurable"),
        ((0.90, 0.00), (0.90, 0.80), False, "ActiveNotMeasurable"),
    ],
    ids=["small drop", "better", "worse", "words hide it", "no question answered", "meaning answers none"],
)
def test_the_gate_compares_what_people_get_and_what_the_model_understands(
    active: tuple[float, float], following: tuple[float, float], passed: bool, reason: str
) -> None:
    """And says both numbers."""
    verdict = judge(Scores(*active), Scores(*following), queries=50, max_drop=0.02)
    assert (verdict.passed, verdict.reason) == (passed, reason)
    assert f"active {active[0]:.3f}, next {following[0]:.3f}" in verdict.message


def test_what_could_not_be_measured_is_refused() -> None:
    """A gate that is silent is shut."""
    assert not not_measurable("the embedder is away", queries=3, max_drop=1.0).passed
