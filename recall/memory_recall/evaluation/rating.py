"""Recalls questions with the relevance of their memories, of which nothing is held back, to choose a level by."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from memory_recall.errors import first_of
from memory_recall.evaluation.evaluate import Question, require_not_degraded
from memory_recall.evaluation.measures import DEPTH
from memory_recall.evaluation.relevance_levels import PROMPT_LIMIT, TunedLevel, choose_level, rated
from memory_recall.search.fusion import Fusion
from memory_recall.search.query import EmbeddedQuery, RecallQuery
from memory_recall.search.recall import Recall
from memory_recall.search.relevance import RelevanceBasis
from memory_recall.search.result import RecallResult
from memory_recall.search.sql.visibility import Everyone


def unanswerable(prompts: Sequence[str], questions: Sequence[Question]) -> list[Question]:
    """Return prompts to which no memory fits as questions over the memories of the questions' users, in turn."""
    users: list[str | Everyone] = list(dict.fromkeys(question.user_id for question in questions))
    return [
        Question(f"unanswerable-{number}", prompt, "unanswerable", users[number % len(users)], frozenset())
        for number, prompt in enumerate(prompts)
    ]


@dataclass(frozen=True, slots=True)
class Rating:
    """How questions are recalled: by which recall, with which vectors, so many at the same time, and by which fusion.

    `progress` is called after each question.
    """

    recall: Recall
    vectors: Mapping[str, EmbeddedQuery]
    concurrency: int
    fusion: Fusion
    progress: Callable[[], None]

    async def results(self, questions: Sequence[Question], limit: int) -> list[RecallResult]:
        """Recall every question in mode hybrid, up to `limit` memories with their relevance each.

        Raises:
            RecallDegraded: the dense leg could not take part.
        """
        turns = asyncio.Semaphore(self.concurrency)

        async def one(question: Question) -> RecallResult:
            query = RecallQuery(
                question.text,
                user_id=question.user_id,
                limit=limit,
                vector=self.vectors.get(question.text),
                fusion=self.fusion,
                least_relevance=0.0,
            )
            async with turns:
                result = await self.recall.recall(query)
            require_not_degraded(result, query.mode)
            self.progress()
            return result

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(question)) for question in questions]
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
        return [task.result() for task in tasks]


async def tune_level(
    rating: Rating, questions: Sequence[Question], prompts: Sequence[Question]
) -> TunedLevel | RelevanceBasis | None:
    """Choose the least relevance by labelled questions and by prompts without an answer.

    Return why relevance is not known if it is not, and None if no relevant memory is among the first ten.

    Raises:
        RecallDegraded: the dense leg could not take part.
    """
    own, others = await rating.results(questions, DEPTH), await rating.results(prompts, PROMPT_LIMIT)
    unknown = next((result.relevance_basis for result in own if not result.relevance_basis.known), None)
    if unknown is not None:
        return unknown
    answers = [rated(result, question.relevant) for result, question in zip(own, questions, strict=True)]
    return choose_level(answers, [rated(result) for result in others])
