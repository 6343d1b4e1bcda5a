"""What becomes of the pairs where a judging model is away or refuses, or its command is interrupted."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from memory_recall.curation import model_answers
from memory_recall.curation.decisions import Decider
from memory_recall.errors import (
    EmbedderBroken,
    EmbedderRejected,
    EmbedderUnauthorized,
    EmbedderUnavailable,
    Interrupted,
)
from memory_recall.retrying import Backoff
from tests.unit.memory_recall.judging_model import RIGHT, YES, Model, judged, lines, scored


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_answers, "_BACKOFF", Backoff(first=0.001, longest=0.001, jitter=0))


async def test_a_model_that_is_away_for_a_moment_is_asked_again() -> None:
    attempts = iter([EmbedderUnavailable("away"), EmbedderUnavailable("away"), YES])
    result = await judged(Model(lambda _newer: next(attempts)), scored(1, 2, 0.9))
    assert lines(result) == [(1, 2, True, Decider.MODEL)]


async def test_a_model_is_asked_again_after_the_time_that_its_server_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after ours, which would outlast this test."""
    monkeypatch.setattr(model_answers, "_BACKOFF", Backoff(first=3_600, longest=3_600))
    attempts = iter([EmbedderUnavailable("busy", retry_after=0.001), YES])
    async with asyncio.timeout(60):
        result = await judged(Model(lambda _newer: next(attempts)), scored(1, 2, 0.9))
    assert lines(result) == [(1, 2, True, Decider.MODEL)]


async def test_a_server_cannot_make_the_command_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_answers, "_LONGEST_WAIT", 0.001)
    attempts = iter([EmbedderUnavailable("busy", retry_after=1e9), YES])
    async with asyncio.timeout(60):
        result = await judged(Model(lambda _newer: next(attempts)), scored(1, 2, 0.9))
    assert lines(result) == [(1, 2, True, Decider.MODEL)]


class Endless(Model):
    """Answers about memories up to note 109, then sets `stop` and answers no more; or already during the trial."""

    def __init__(self, stop: asyncio.Event, *, in_trial: bool = False) -> None:
        super().__init__(lambda _newer: YES)
        self.stop, self.in_trial = stop, in_trial

    async def first_token(
        self, instruction: str, examples: Sequence[tuple[str, str]], text: str, /, *, most: int
    ) -> Mapping[str, float]:
        given = await super().first_token(instruction, examples, text, most=most)
        if self.in_trial or (self.asked and int(self.asked[-1][5:]) > 109):
            self.stop.set()
            await asyncio.Event().wait()
        return given


async def test_what_a_model_answered_before_the_command_was_interrupted_is_kept() -> None:
    """The requests that are under way are given up, however long they would take."""
    found, stop = [scored(number, 100 + number, 0.9 - number / 100) for number in range(30)], asyncio.Event()
    model = Endless(stop)
    async with asyncio.timeout(60):
        result = await judged(model, *found, stop=stop)
    assert isinstance(result.failure, Interrupted)
    assert 0 < result.judged <= 10
    assert len(model.asked) < 30
    assert [one.decided_by for one in result.judgements].count(Decider.MODEL) == result.judged
    assert (len(result.judgements), result.judged + result.not_judged) == (30, 30)


@pytest.mark.parametrize("in_trial", [True, False])
async def test_a_command_that_is_interrupted_before_anything_was_judged_proposes_nothing(*, in_trial: bool) -> None:
    """Not a file of proposals that looks judged; and during the trial no memory is sent any more."""
    stop = asyncio.Event()
    model = Endless(stop, in_trial=in_trial)
    async with asyncio.timeout(60):
        with pytest.raises(Interrupted):
            await judged(model, scored(1, 110, 0.9), scored(2, 111, 0.9), stop=stop)
    assert bool(model.asked) is not in_trial


@pytest.mark.parametrize("kind", [EmbedderUnavailable, EmbedderUnauthorized, EmbedderRejected, EmbedderBroken])
async def test_a_model_that_never_answers_is_an_error_after_a_few_requests(kind: type[Exception]) -> None:
    """Not a file of proposals that looks judged. Neither in the trial nor after it."""
    found = [scored(number, 100 + number, 0.9) for number in range(50)]
    model = Model(lambda _newer: kind("no"))
    with pytest.raises(kind):
        await judged(model, *found)
    assert len(model.asked) <= 12
    silent = Model(lambda _newer: YES, dict.fromkeys(RIGHT, kind("no")))
    with pytest.raises(kind):
        await judged(silent, *found)
    assert (silent.tried <= 12, silent.asked) == (True, [])
    with pytest.raises(kind):
        await judged(model, scored(1, 2, 0.9))


@pytest.mark.parametrize("kind", [EmbedderUnavailable, EmbedderUnauthorized, EmbedderRejected, EmbedderBroken])
async def test_what_a_model_answered_before_it_stopped_is_kept(kind: type[Exception]) -> None:
    """The rules score the rest, and the reason is told."""
    found = [scored(number, 100 + number, 0.9 - number / 100) for number in range(30)]
    model = Model(lambda newer: YES if int(newer[5:]) < 110 else kind("no"))
    result = await judged(model, *found)
    assert isinstance(result.failure, kind)
    assert len(model.asked) < 30
    assert [one.decided_by for one in result.judgements] == [Decider.MODEL] * 10 + [Decider.RULES] * 20
    assert (result.judged, result.unusable + result.not_judged) == (10, 20)


async def test_a_single_pair_that_is_refused_ends_nothing() -> None:
    """A hosted model may refuse a text by what it is about."""
    found = [scored(number, 100 + number, 0.9 - number / 100) for number in range(20)]
    model = Model(lambda newer: EmbedderRejected("no") if int(newer[5:]) % 5 == 0 else YES)
    result = await judged(model, *found)
    assert (result.failure, result.judged, result.unusable, result.not_judged) == (None, 16, 4, 0)
