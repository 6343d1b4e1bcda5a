"""Measures recall on labelled questions: the very statement that serves prompts, not a model of it.

Questions are embedded in batches first, because a service answers sixty of them together far faster than one by one;
then they are asked concurrently. An evaluation must not flatter or slander: if meaning could not take part in a
question that was to measure it, the run fails and says why, instead of reporting the words' result under meaning's
name.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from memory_recall.embedding.client import EmbeddedBatch
from memory_recall.errors import EmbedderUnavailable, InvalidInput, MemoryIndexError, first_of
from memory_recall.evaluation import measures
from memory_recall.search.fusion import Fusion
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.query import Mode, RecallResult
from memory_recall.search.query_embedding import Embedded

EVERYONE = "all"  # as a question's `conv`: not scoped to one user
_EMBEDDING_BATCH = 64
_EMBEDDING_ATTEMPTS = 5
_DEFAULT_CONCURRENCY = 4


class RecallDegradedError(MemoryIndexError):
    """A question that was to measure meaning was answered by words alone."""

    reason: ClassVar[str] = "RecallDegraded"


class BatchEmbedder(Protocol):
    """What embeds the questions."""

    model: str | None

    async def embed_queries(self, texts: Sequence[str], /) -> EmbeddedBatch:
        """The vectors of many queries."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """A labelled question. `scope` None searches everybody's memories."""

    query_id: str
    text: str
    stratum: str
    scope: str | None
    relevant: frozenset[int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one question scored in one mode."""

    question: Question
    mode: Mode
    scores: measures.Scores


def parse_questions(lines: Iterable[str]) -> list[Question]:
    """Read questions in the harness' form, one JSON object a line.

    Raises:
        InvalidInput: a line is unusable; it is named by number.
    """
    questions: list[Question] = []
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        question = _question(line, number)
        if question.query_id in seen:
            raise InvalidInput(f"Line {number} repeats query_id {question.query_id!r}.", "Give every question its own.")
        seen.add(question.query_id)
        questions.append(question)
    if not questions:
        raise InvalidInput("There is no question in the input.", "Give one JSON object a line.")
    return questions


def _question(line: str, number: int) -> Question:
    try:
        given = json.loads(line)
    except ValueError:
        raise InvalidInput(f"Line {number} is not JSON.", "Give one JSON object a line.") from None
    if not isinstance(given, dict):
        raise InvalidInput(f"Line {number} is not an object.", "Give one JSON object a line.")
    text, relevant = given.get("text"), given.get("relevant_ids")
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"Line {number} has no text.", "Every question needs a `text`.")
    if not isinstance(relevant, list) or not relevant or not all(type(one) is int for one in relevant):
        raise InvalidInput(
            f"Line {number} has no usable relevant_ids.", "List the ids of the memories that answer the question."
        )
    conv = given.get("conv")
    return Question(
        query_id=str(given.get("query_id", number)),
        text=text,
        stratum=str(given.get("stratum", EVERYONE)),
        scope=None if conv in {None, "", EVERYONE} else str(conv),
        relevant=frozenset(relevant),
    )


def summarise(outcomes: Sequence[Outcome], modes: Sequence[Mode]) -> dict[str, Any]:
    """Means by measure and mode, over all questions and by stratum."""
    strata = sorted({one.question.stratum for one in outcomes})
    questions = len({one.question.query_id for one in outcomes})
    return {
        **_table(outcomes, modes),
        "strata": {name: _table([one for one in outcomes if one.question.stratum == name], modes) for name in strata},
        "queries": questions,
    }


def _table(outcomes: Sequence[Outcome], modes: Sequence[Mode]) -> dict[str, dict[str, float]]:
    means = {mode: measures.mean([one.scores for one in outcomes if one.mode == mode]).named() for mode in modes}
    return {measure: {mode: round(means[mode][measure], 5) for mode in modes} for measure in measures.MEASURES}


async def embed_questions(
    questions: Sequence[Question],
    embedder: BatchEmbedder,
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> dict[str, Embedded]:
    """The vectors of all questions by their text; a busy embedder is given the time that it asks for."""
    texts = list(dict.fromkeys(question.text for question in questions))
    found: dict[str, Embedded] = {}
    for start in range(0, len(texts), _EMBEDDING_BATCH):
        batch = texts[start : start + _EMBEDDING_BATCH]
        embedded = await _embed_patiently(embedder, batch, sleep)
        for text, vector in zip(batch, embedded.vectors, strict=True):
            found[text] = Embedded(vector.tolist(), embedder.model)
    return found


async def _embed_patiently(
    embedder: BatchEmbedder, batch: Sequence[str], sleep: Callable[[float], Awaitable[object]]
) -> EmbeddedBatch:
    for _ in range(_EMBEDDING_ATTEMPTS - 1):
        try:
            return await embedder.embed_queries(batch)
        except EmbedderUnavailable as error:
            await sleep(error.retry_after or 1.0)
    return await embedder.embed_queries(batch)


def _require_meaning(result: RecallResult, mode: Mode) -> None:
    if result.reason is not None:
        raise RecallDegradedError(
            f"Mode {mode} could not be measured: recall degraded to words ({result.reason}).",
            "Wait until the MemoryIndex is Ready, or evaluate --modes lexical.",
        )


async def evaluate(
    recall: HybridRecall,
    questions: Sequence[Question],
    modes: Sequence[Mode],
    vectors: Mapping[str, Embedded],
    *,
    fusion: Fusion | None = None,
    concurrency: int = _DEFAULT_CONCURRENCY,
    share: float = 1.0,
    progress: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Ask every question in every mode, with the recall's own fusion unless another is given.

    So many questions are asked at once, for that share of the time (0 to 1): beside recalls that people wait for it is
    well to leave them room.

    Raises:
        RecallDegradedError: meaning could not take part.
    """
    turns = asyncio.Semaphore(concurrency)

    async def ask(question: Question, mode: Mode) -> Outcome:
        async with turns:
            began = time.monotonic()
            result = await recall.recall(
                question.text,
                limit=measures.DEPTH,
                user_id=question.scope,
                mode=mode,
                vector=vectors.get(question.text),
                fusion=fusion,
            )
            await asyncio.sleep((time.monotonic() - began) * (1 / share - 1))
        _require_meaning(result, mode)
        progress()
        return Outcome(question, mode, measures.score(result.ids, question.relevant))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(question, mode)) for question in questions for mode in modes]
    except BaseExceptionGroup as errors:
        raise first_of(errors) from None
    return [task.result() for task in tasks]
