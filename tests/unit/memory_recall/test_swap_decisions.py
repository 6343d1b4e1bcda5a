"""A swap's next action follows from facts alone, and its gate lets nothing pass that it could not measure."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_recall.embedding.canary import Canary
from memory_recall.embedding.served_model import ServedModel
from memory_recall.errors import SwapInProgress
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.swap import process
from memory_recall.swap.gate import Scores, Verdict, judge, not_measurable
from memory_recall.swap.machine import (
    OPEN_STAGES,
    TRANSITIONS,
    Action,
    Fill,
    GateOutcome,
    Stage,
    SwapFacts,
    decide,
    path,
)
from memory_recall.swap.state_sql import SwapRecord

FULL = Fill(wanted=1000, pending=0, quarantined=0)
DONE = SwapFacts(Stage.INDEXING, has_column=True, fill=FULL, index_valid=True, gated=True, outcome=GateOutcome.PASSED)

facts = st.builds(
    SwapFacts,
    stage=st.sampled_from(Stage),
    has_column=st.booleans(),
    fill=st.builds(Fill, st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000)),
    index_valid=st.booleans(),
    gated=st.booleans(),
    outcome=st.sampled_from([None, *GateOutcome]),
    flip_wanted=st.booleans(),
    is_rollback=st.booleans(),
)


@pytest.mark.parametrize(
    ("changes", "action"),
    [
        ({"has_column": False}, Action.ADD_COLUMN),
        ({"fill": replace(FULL, pending=3)}, Action.FILL),
        ({"fill": replace(FULL, quarantined=11)}, Action.REFUSE),
        ({"fill": replace(FULL, quarantined=11), "is_rollback": True}, Action.FLIP),
        ({"index_valid": False}, Action.INDEX),
        ({"outcome": None}, Action.MEASURE),
        ({"outcome": GateOutcome.REFUSED}, Action.REFUSE),
        ({"outcome": GateOutcome.UNDECIDED}, Action.REFUSE),
        ({}, Action.FLIP),
        ({"flip_wanted": False}, Action.REST),
        ({"gated": False, "outcome": None}, Action.FLIP),
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
        assert given_facts.is_rollback or not given_facts.fill.refused
        assert given_facts.outcome is GateOutcome.PASSED or not given_facts.gated


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


def _verdict(
    *, hybrid: tuple[int, int] = (0, 0), dense: tuple[int, int] = (0, 0), of: int = 400, tolerated: float = 0.05
) -> Verdict:
    """Judge a model that loses and gains as many answers as given; the active model answers every tenth one wrong."""

    def scores(changes: tuple[int, int]) -> list[tuple[float, float]]:
        lost, gained = changes
        pairs = [(1.0, 0.0)] * lost + [(0.0, 1.0)] * gained
        return pairs + [(float(at % 10 > 0),) * 2 for at in range(of - len(pairs))]

    both = list(zip(scores(hybrid), scores(dense), strict=True))
    active = [Scores(words[0], meaning[0]) for words, meaning in both]
    following = [Scores(words[1], meaning[1]) for words, meaning in both]
    return judge(active, following, max_drop=tolerated)


@pytest.mark.parametrize(
    ("given_changes", "outcome", "reason"),
    [
        ({}, "passed", "Passed"),
        ({"hybrid": (12, 12)}, "passed", "Passed"),
        ({"hybrid": (6, 60)}, "passed", "Passed"),
        ({"hybrid": (20, 6)}, "undecided", "Undecided"),
        ({"hybrid": (60, 12)}, "refused", "RecallDropped"),
        ({"dense": (20, 6)}, "passed", "Passed"),
        ({"dense": (200, 0)}, "refused", "RecallDropped"),
        ({"hybrid": (1, 0), "of": 40}, "undecided", "Undecided"),
        ({"hybrid": (1, 0), "dense": (1, 0), "of": 1}, "undecided", "Undecided"),
        ({"of": 2}, "passed", "Passed"),
        ({"dense": (10, 0), "of": 12}, "refused", "RecallDropped"),
        ({"hybrid": (12, 12), "tolerated": 0.0}, "undecided", "Undecided"),
        ({"tolerated": 0.0}, "passed", "Passed"),
    ],
    ids=[
        "the same answers",
        "as many others",
        "better",
        "perhaps too much worse",
        "surely too much worse",
        "the dense leg perhaps too much worse",
        "words hide it",
        "one of forty",
        "one of one",
        "the same two answers",
        "words hide it in a few questions",
        "no drop tolerated",
        "no drop tolerated and none there",
    ],
)
def test_the_gate_lets_pass_what_is_shown_to_be_good_enough_and_refuses_what_is_shown_not_to_be(
    given_changes: dict[str, object], outcome: str, reason: str
) -> None:
    """The dense leg can refuse a model, but not hold one up that it does not refuse."""
    verdict = _verdict(**given_changes)  # type: ignore[arg-type]
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert f"over {verdict.queries} questions: active {verdict.active.hybrid:.3f}" in verdict.message


def test_an_undecided_gate_says_how_many_questions_are_missing_and_these_mostly_decide() -> None:
    """With so many more questions of the same kind, four of five gates decide."""
    few = _verdict(hybrid=(6, 4), of=100)
    assert few.outcome is GateOutcome.UNDECIDED
    assert few.missing is not None
    assert f"about {few.missing} more labelled questions" in few.message
    chance, decided = np.random.default_rng(3), 0
    for _ in range(60):
        lost, gained, _rest = chance.multinomial(100 + few.missing, [0.06, 0.04, 0.90])
        decided += _verdict(hybrid=(lost, gained), of=100 + few.missing).outcome is GateOutcome.PASSED
    assert 40 <= decided <= 56


def test_a_gate_that_no_number_of_questions_would_decide_says_so() -> None:
    """The drop is the tolerated one."""
    verdict = _verdict(hybrid=(25, 5))
    assert (verdict.outcome, verdict.missing) == ("undecided", None)
    assert "more questions would not decide" in verdict.message


@pytest.mark.parametrize("unmeasurable", [Scores(0.0, 0.0), Scores(1.0, 0.0)], ids=["nothing", "meaning nothing"])
def test_a_model_is_refused_where_the_active_one_answers_no_question(unmeasurable: Scores) -> None:
    """Whatever the next model does, nothing can be compared."""
    verdict = judge([unmeasurable] * 400, [Scores(1.0, 1.0)] * 400, max_drop=0.05)
    assert (verdict.outcome, verdict.reason) == ("refused", "ActiveNotMeasurable")


def test_a_model_that_could_not_be_measured_is_refused() -> None:
    """A gate that is silent is shut."""
    verdict = not_measurable("the API key is refused", queries=3, max_drop=1.0)
    assert (verdict.outcome, verdict.reason) == ("refused", "NotMeasurable")


_SWAP = SwapRecord(
    id=1,
    stage="refused",
    from_model=RecordedModel(1, "first", None, 8),
    to_model=RecordedModel(2, "second", None, 8),
    gate=None,
    message="the numbers",
    started_at=datetime(2026, 1, 1, tzinfo=UTC),
    updated_at=datetime(2026, 1, 1, tzinfo=UTC),
    flipped_at=None,
)


@pytest.mark.parametrize(
    ("changes", "undecided"),
    [
        ({"gate": {"outcome": "undecided", "message": "the numbers"}}, True),
        ({"gate": {"outcome": "refused", "message": "the numbers"}}, False),
        ({"gate": {"passed": False, "reason": "RecallDropped", "message": "the numbers"}}, False),
        ({"gate": {"outcome": "undecided", "message": "the numbers"}, "stage": "filling"}, False),
        ({"gate": {"outcome": "undecided", "message": "numbers of an earlier run"}}, False),
        ({}, False),
    ],
    ids=["undecided", "refused", "no outcome", "measured again", "refused later", "no gate"],
)
def test_a_recorded_swap_tells_whether_its_gate_could_not_decide(changes: dict[str, object], undecided: bool) -> None:
    """The stage is the same as of a refused one."""
    assert replace(_SWAP, **changes).undecided is undecided  # type: ignore[arg-type]


_VECTORS = np.random.default_rng(7).standard_normal((3, 8))
_CANARY, _NEARLY, _OTHER = (str(Canary.of(one.tolist())) for one in (_VECTORS, _VECTORS * 1.0001, -_VECTORS))


@pytest.mark.parametrize(
    ("recorded", "given", "same"),
    [
        ("sha256:aa", "sha256:aa", True),
        ("sha256:aa", "sha256:bb", False),
        (_CANARY, _NEARLY, True),
        (_CANARY, _OTHER, False),
        ("sha256:aa", _CANARY, False),
        (_CANARY, "sha256:aa", False),
        ("sha256:aa", None, False),
        (_CANARY, None, False),
    ],
)
def test_vectors_of_an_earlier_run_are_used_again_only_if_the_same_file_certainly_made_them(
    recorded: str, given: str | None, same: bool
) -> None:
    """Neither those of a swap that was interrupted, nor those of the model before the last flip."""
    model, target = RecordedModel(2, "second", recorded, 8), ServedModel("second", 8, given)
    assert process._is_target(model, target) is same
    if same:
        process._require_same(replace(_SWAP, to_model=model), target)
    else:
        with pytest.raises(SwapInProgress):
            process._require_same(replace(_SWAP, to_model=model), target)
