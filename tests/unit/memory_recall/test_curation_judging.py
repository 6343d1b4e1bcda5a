"""What a language model may change about the pairs that the rules have found."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory_recall.contrib.curation import judging
from memory_recall.contrib.curation.decisions import THRESHOLD, Action, Decider
from memory_recall.contrib.curation.features import Frequencies, Memory, Pair
from memory_recall.contrib.curation.judging import (
    NO,
    WEIGHT,
    YES,
    Judging,
    examples,
    judge_by_model,
    log_odds_of_yes,
    question_about,
)
from memory_recall.embedding.bounded_answer import BeforeSending
from memory_recall.errors import (
    DatabaseUnreachable,
    EmbedderBroken,
    EmbedderRejected,
    EmbedderUnauthorized,
    EmbedderUnavailable,
)
from memory_recall.retrying import Backoff

SAYS_YES, SAYS_NO = {YES: 0.9, NO: 0.1}, {YES: 0.1, NO: 0.9}

Scored = tuple[Pair, float]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "_BACKOFF", Backoff(first=0.001, longest=0.001, jitter=0))


def memory(number: int, content: str = "") -> Memory:
    created = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
    text = content or f"note {number}"
    return Memory(number, text, frozenset({"tag-canary"}), frozenset({"term-canary"}), created, f"{number:032x}")


def pair(older: int, newer: int, content: str = "") -> Pair:
    return Pair(memory(older), memory(newer, content), 0.5)


def scored(older: int, newer: int, score: float) -> Scored:
    return pair(older, newer), score


class Model:
    """Answers by the text of the newer note; an answer that is an error is raised. Keeps what it was asked."""

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.at_once = self.most_at_once = 0

    async def first_token(
        self, instruction: str, examples: Sequence[tuple[str, str]], text: str, *, before_sending: BeforeSending
    ) -> Mapping[str, float]:
        await before_sending()
        assert "unnecessary" in instruction
        assert list(examples) == judging.examples()
        newer = text.partition("NEWER NOTE (")[2].partition("): ")[2]
        self.asked.append(newer)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        answer = self.answer(newer)
        if isinstance(answer, Exception):
            raise answer
        given: Mapping[str, float] = answer
        return given


async def everything(pairs: Sequence[Pair]) -> set[tuple[int, int]]:
    """A table in which nothing changes."""
    return {one.ids for one in pairs}


async def judged(model: Model, *found: Scored, lookup: judging.Lookup = everything, **options: Any) -> Judging:
    """What is proposed if these pairs have these scores by the rules."""
    pairs, scores = [one for one, _ in found], [score for _, score in found]
    nobody = Frequencies(0, {}, {})
    return await judge_by_model(model, pairs, scores, nobody, threshold=THRESHOLD, lookup=lookup, **options)


def lines(result: Judging) -> list[tuple[int, int, bool, Decider]]:
    return [(*one.pair.ids, one.action is not Action.ADD, one.decided_by) for one in result.judgements]


@pytest.mark.promise("judge-misled-for-own-pairs")
@pytest.mark.parametrize(
    ("tokens", "odds"),
    [
        ({"Yes": 0.6, "No": 0.3, "yes": 0.05}, 0.605 / 0.305),
        ({" Yes": 0.4, "Yes": 0.2, "No": 0.2}, 0.605 / 0.205),
        ({"Yes": 1.0}, 1.005 / 0.005),
        ({"No": 0.5}, 0.005 / 0.505),
        ({"Yes": 0.3, "No": 0.19, "The": 0.5}, None),
        ({"Yesterday": 0.9, "None": 0.1}, None),
        ({}, None),
    ],
)
def test_an_answer_counts_by_how_much_likelier_yes_is_than_no_and_not_if_it_is_neither(
    tokens: Mapping[str, float], odds: float | None
) -> None:
    """Within bounds, so that one answer cannot outweigh every rule."""
    assert log_odds_of_yes(tokens) == (None if odds is None else pytest.approx(WEIGHT * math.log(odds)))


def test_the_model_sees_the_texts_and_the_dates_of_both_memories_and_nothing_else() -> None:
    asked = question_about(pair(1, 3))
    assert asked == "OLDER NOTE (2026-01-02): note 1\n\nNEWER NOTE (2026-01-04): note 3"


def test_half_of_the_examples_are_restatements() -> None:
    answers = [answer for _, answer in examples()]
    assert (answers.count(YES), answers.count(NO)) == (8, 8)
    assert len({question for question, _ in examples()}) == 16


def worth(answer: Mapping[str, float]) -> float:
    """What an answer of Yes or No adds to the log-odds of the rules."""
    found = log_odds_of_yes(answer)
    assert found is not None
    return found


async def test_a_pair_s_score_is_the_rules_and_how_much_surer_the_model_is_of_it_than_on_average() -> None:
    """The rules alone score a pair whose answer is no Yes or No, and one that is too unlikely to be asked about."""
    found = [scored(1, 11, 0.9), scored(2, 12, 0.8), scored(3, 13, 0.15), scored(4, 14, 0.09), scored(5, 15, 0.3)]
    answers = {"note 11": SAYS_NO, "note 12": {"I": 1.0}, "note 13": SAYS_YES, "note 15": SAYS_NO}
    model = Model(answers.__getitem__)
    result = await judged(model, *found)
    mean = (worth(SAYS_YES) + 2 * worth(SAYS_NO)) / 24  # the 21 answers that are missing count as even
    logit = math.log(0.15 / 0.85) + worth(SAYS_YES) - mean
    assert lines(result) == [
        (3, 13, True, Decider.MODEL),
        (2, 12, True, Decider.RULES),
        (1, 11, False, Decider.MODEL),
    ]
    assert result.judgements[0].score == pytest.approx(1 / (1 + math.exp(-logit)))
    assert (result.judged, result.unusable, result.not_judged, result.left_out) == (3, 1, 0, 0)
    assert sorted(model.asked) == sorted(answers)


@pytest.mark.parametrize("leaning", [SAYS_YES, SAYS_NO, {YES: 0.6, NO: 0.4}])
async def test_a_model_that_leans_towards_one_answer_changes_nothing_by_that(leaning: Mapping[str, float]) -> None:
    """What it says of all pairs alike says nothing about one."""
    found = [scored(number, 100 + number, 0.2 + number / 50) for number in range(30)]
    result = await judged(Model(lambda _newer: leaning), *found)
    assert [round(one.score, 6) for one in result.judgements] == [round(score, 6) for _, score in reversed(found)]
    assert result.judged == 30


async def test_a_memory_has_one_successor_the_one_with_the_best_score_of_both() -> None:
    """Here the model is sure of the second one by the rules."""
    found = [scored(1, 11, 0.9), scored(1, 12, 0.6)]
    result = await judged(Model(lambda newer: SAYS_YES if newer == "note 12" else SAYS_NO), *found)
    assert lines(result) == [(1, 12, True, Decider.MODEL)]


async def test_a_model_is_not_asked_at_all_where_no_pair_is_likely_enough() -> None:
    model = Model(lambda _newer: SAYS_YES)
    result = await judged(model, scored(1, 2, 0.05))
    assert (model.asked, result.judgements, result.judged) == ([], [], 0)


async def test_the_best_pairs_are_asked_about_four_at_a_time_and_no_more_than_allowed() -> None:
    found = [scored(number, 100 + number, 0.2 + number / 100) for number in range(1, 13)]
    model, seen = Model(lambda _newer: SAYS_YES), []
    result = await judged(model, *found, most=9, progress=lambda done, total: seen.append((done, total)))
    assert sorted(model.asked) == sorted(f"note {100 + number}" for number in range(4, 13))
    assert model.most_at_once == 4
    assert (result.judged, result.not_judged) == (9, 3)
    assert seen == [(done, 9) for done in range(1, 10)]


async def test_a_text_that_is_too_long_is_not_sent_rather_than_cut() -> None:
    model = Model(lambda _newer: SAYS_NO)
    result = await judged(model, (pair(1, 2, "x" * 8_001), 0.9), scored(3, 4, 0.8))
    assert model.asked == ["note 4"]
    assert lines(result)[0] == (1, 2, True, Decider.RULES)
    assert (result.judged, result.not_judged) == (1, 1)


async def test_a_pair_that_changed_before_it_was_sent_is_neither_sent_nor_proposed() -> None:
    """And one that changed after it was sent, or that was never to be sent, is not proposed either."""
    sent: list[tuple[int, int]] = []

    async def lookup(pairs: Sequence[Pair]) -> set[tuple[int, int]]:
        sent.extend(one.ids for one in pairs if len(pairs) == 1)
        gone = {(1, 11)} if len(pairs) == 1 else {(2, 12), (4, 14)}  # the last lookup finds the first one again
        return {one.ids for one in pairs} - gone

    found = [scored(number, 10 + number, 1 - number / 10) for number in (1, 2, 3)]
    model = Model(lambda _newer: SAYS_YES)
    long = pair(4, 14, "x" * 8_001)
    result = await judged(model, *found, (long, 0.55), lookup=lookup)
    assert sent == [(1, 11), (2, 12), (3, 13)]
    assert model.asked == ["note 12", "note 13"]
    assert lines(result) == [(3, 13, True, Decider.MODEL)]
    assert (result.judged, result.not_judged, result.left_out) == (1, 0, 3)


@pytest.mark.promise("judge-gets-two-texts")
async def test_a_pair_is_looked_up_again_before_it_is_sent_again() -> None:
    """The memory became sensitive after the first attempt, which found no model."""
    model = Model(lambda _newer: EmbedderUnavailable("away"))

    async def lookup(pairs: Sequence[Pair]) -> set[tuple[int, int]]:
        return set() if model.asked else {one.ids for one in pairs}

    assert (await judged(model, scored(1, 2, 0.9), lookup=lookup)).judgements == []
    assert model.asked == ["note 2"]


@pytest.mark.parametrize("slow", [1, 1_000], ids=["for a moment", "for good"])
async def test_a_model_waits_no_longer_than_its_limit_for_a_slow_database_to_look_a_pair_up(
    monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    """And nothing of the pair is sent by then; the error names the database, not the model."""
    monkeypatch.setattr(judging, "_CONFIRM_SECONDS", 0.01)
    model, lookups = Model(lambda _newer: SAYS_YES), []

    async def lookup(pairs: Sequence[Pair]) -> set[tuple[int, int]]:
        lookups.append(pairs)
        if len(lookups) <= slow:
            await asyncio.sleep(60)
        return {one.ids for one in pairs}

    async with asyncio.timeout(10):
        if slow == 1:
            assert (await judged(model, scored(1, 2, 0.9), lookup=lookup)).judged == 1
            return
        with pytest.raises(DatabaseUnreachable, match="took longer"):
            await judged(model, scored(1, 2, 0.9), lookup=lookup)
    assert (len(lookups), model.asked) == (3, [])


@pytest.mark.parametrize("retry_after", [None, 0.001, 1e9])
async def test_a_model_that_is_away_for_a_moment_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, retry_after: float | None
) -> None:
    """After the time that its server names, which cannot make the command wait for long."""
    monkeypatch.setattr(judging, "_LONGEST_WAIT", 0.001)
    away = EmbedderUnavailable("away", retry_after=retry_after)
    attempts = iter([away, away, SAYS_YES])
    async with asyncio.timeout(60):
        result = await judged(Model(lambda _newer: next(attempts)), scored(1, 2, 0.9))
    assert lines(result) == [(1, 2, True, Decider.MODEL)]


@pytest.mark.parametrize("kind", [EmbedderUnavailable, EmbedderUnauthorized, EmbedderRejected, EmbedderBroken])
async def test_a_model_that_does_not_judge_is_an_error_after_a_few_requests(kind: type[Exception]) -> None:
    """Not a file of proposals that looks judged, whether it answered before or never did."""
    found = [scored(number, 100 + number, 0.9 - number / 100) for number in range(50)]
    for answered in (0, 10):

        def answer(newer: str, first_refused: int = 100 + answered) -> Any:
            return SAYS_YES if int(newer[5:]) < first_refused else kind("no")

        model = Model(answer)
        with pytest.raises(kind):
            await judged(model, *found)
        assert len(model.asked) <= answered + 12
    with pytest.raises(kind):
        await judged(Model(lambda _newer: kind("no")), scored(1, 2, 0.9))


async def test_a_single_pair_that_is_refused_ends_nothing() -> None:
    """A hosted model may refuse a text by what it is about."""
    found = [scored(number, 100 + number, 0.9 - number / 100) for number in range(20)]
    model = Model(lambda newer: EmbedderRejected("no") if int(newer[5:]) % 5 == 0 else SAYS_YES)
    result = await judged(model, *found)
    assert (result.judged, result.unusable, result.not_judged) == (16, 4, 0)
