"""A language model that judges pairs as a test wants it to, and what is proposed with it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from memory_recall.curation import judging
from memory_recall.curation.decisions import THRESHOLD, Action, Decider
from memory_recall.curation.features import Frequencies, Memory, Pair
from memory_recall.curation.judging import Judging, judge_by_model
from memory_recall.curation.judging_examples import SHOWN, TRIAL
from memory_recall.errors import EmbedderRejected

YES, NO = {"Yes": 0.9, "No": 0.1}, {"Yes": 0.1, "No": 0.9}
RIGHT = {question: YES if answer == "Yes" else NO for question, answer in (one.turn for one in TRIAL)}
NOBODY = Frequencies(0, {}, {})

Scored = tuple[Pair, float]


def memory(number: int, content: str = "") -> Memory:
    created = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
    text = content or f"note {number}"
    return Memory(number, text, frozenset({"tag-canary"}), frozenset({"term-canary"}), created, f"{number:032x}")


def pair(older: int, newer: int, content: str = "") -> Pair:
    return Pair(memory(older), memory(newer, content), 0.5)


def scored(older: int, newer: int, score: float) -> Scored:
    return pair(older, newer), score


class Model:
    """Answers by the text of the newer note; an answer that is an error is raised. Keeps what it was asked.

    In the trial it is right unless `trial` says otherwise. It refuses to return more than `limit` tokens.
    """

    def __init__(self, answer: Callable[[str], Any], trial: Mapping[str, Any] = RIGHT, limit: int = 300) -> None:
        self.answer = answer
        self.trial = trial
        self.limit = limit
        self.refusal: type[Exception] = EmbedderRejected
        self.asked: list[str] = []
        self.most: list[int] = []
        self.tried = self.at_once = self.most_at_once = 0

    async def first_token(
        self, instruction: str, examples: Sequence[tuple[str, str]], text: str, /, *, most: int
    ) -> Mapping[str, float]:
        if most > self.limit:
            raise self.refusal(f"top_logprobs is {self.limit} at most")
        self.most.append(most)
        assert "unnecessary" in instruction
        assert list(examples) == [one.turn for one in SHOWN]
        if text in self.trial:
            self.tried += 1
            return self._likeliest(self.trial[text], most)
        newer = text.partition("NEWER NOTE (")[2].partition("): ")[2]
        self.asked.append(newer)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.001)
        self.at_once -= 1
        return self._likeliest(self.answer(newer), most)

    def _likeliest(self, answer: Any, most: int) -> Mapping[str, float]:
        given = self._given(answer)
        return dict(sorted(given.items(), key=lambda one: -one[1])[:most])

    def _given(self, answer: Any) -> Mapping[str, float]:
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
    options = {"stop": asyncio.Event(), "known": (), **options}
    return await judge_by_model(model, pairs, scores, NOBODY, threshold=THRESHOLD, lookup=lookup, **options)


def lines(result: Judging) -> list[tuple[int, int, bool, Decider]]:
    return [(*one.pair.ids, one.action is not Action.ADD, one.decided_by) for one in result.judgements]
