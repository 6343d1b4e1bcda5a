"""A swap's next action follows from facts alone, and its gate lets nothing pass that it could not measure."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_recall.swap.gate import Scores, judge, not_measurable
from memory_recall.swap.machine import OPEN_STAGES, TRANSITIONS, Action, Fill, Stage, SwapFacts, decide, path

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
    ("changes", "action"),
    [
        ({"has_column": False}, Action.ADD_COLUMN),
        ({"fill": replace(FULL, pending=3)}, Action.FILL),
        ({"fill": replace(FULL, quarantined=11)}, Action.REFUSE),
        ({"index_valid": False}, Action.INDEX),
        ({"passed": None}, Action.MEASURE),
        ({"passed": False}, Action.REFUSE),
        ({}, Action.FLIP),
        ({"flip_wanted": False}, Action.REST),
        ({"gated": False, "passed": None}, Action.FLIP),
        ({"stage": Stage.REFUSED}, Action.REST),
        ({"stage": Stage.FLIPPED}, Action.REST),
    ],
)
def test_the_next_action_is_the_first_one_that_is_missing(changes: dict[str, object], action: Action) -> None:
    """An interrupted step is found missing and done again."""
    assert decide(replace(DONE, **changes)) is action


@given(facts)
def test_only_a_model_that_is_filled_indexed_and_passed_is_flipped(given_facts: SwapFacts) -> None:
    """The one action that recalls notice has every condition before it."""
    if decide(given_facts) is Action.FLIP:
        assert given_facts.stage in OPEN_STAGES - {Stage.REFUSED}
        assert (given_facts.has_column, given_facts.index_valid, given_facts.fill.full) == (True, True, True)
        assert not given_facts.fill.refused
        assert given_facts.passed or not given_facts.gated


@given(st.sampled_from(Stage), st.sampled_from(Stage))
def test_a_path_takes_permitted_transitions_to_its_goal(start: Stage, goal: Stage) -> None:
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
def test_the_gate_compares_the_hybrid_mode_and_the_dense_leg_alone(
    active: tuple[float, float], following: tuple[float, float], passed: bool, reason: str
) -> None:
    """And says both numbers."""
    verdict = judge(Scores(*active), Scores(*following), queries=50, max_drop=0.02)
    assert (verdict.passed, verdict.reason) == (passed, reason)
    assert f"active {active[0]:.3f}, next {following[0]:.3f}" in verdict.message


def test_a_model_that_could_not_be_measured_is_refused() -> None:
    """A gate that is silent is shut."""
    assert not not_measurable("the embedder is away", queries=3, max_drop=1.0).passed
