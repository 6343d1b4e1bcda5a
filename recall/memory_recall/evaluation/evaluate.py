"""Measures recall on labelled questions, with the SQL statement that every recall uses.

Questions are first embedded in batches, because a service embeds sixty questions together far faster than one by one.
Then they are recalled concurrently. If a question should measure the dense leg but the dense leg could not take part,
the evaluation fails and says why. Otherwise it would report the result of the lexical leg under the name of another
mode. Likewise it fails if questions should be expanded but the language model gave no answer. An answer without usable
words is a part of what expansion is worth, and counts as it is.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from memory_recall.embedding.wire import EmbeddedBatch
from memory_recall.errors import EmbedderUnavailable, InvalidInput, MemoryIndexError, first_of
from memory_recall.evaluation import measures
from memory_recall.evaluation.judgements import judged_id, parse_judgements
from memory_recall.retrying import retry
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.search.fusion import Fusion
from memory_recall.search.query import EmbeddedQuery, Mode, RecallQuery
from memory_recall.search.recall import Recall
from memory_recall.search.result import WHY_DEGRADED, Expansion, RecallResult
from memory_recall.search.sql.visibility import EVERYONE, Everyone

UNNAMED = "(none)"  # the stratum of a question that names none
_ALL = "all"  # as a question's `conv`: not scoped to one user
_EMBEDDING_BATCH = 64
_EMBEDDING_SECONDS = 60.0  # how long a busy embedder is tried again
_DEFAULT_CONCURRENCY = 4
_NOT_ANSWERED = frozenset(
    {Expansion.PAUSED, Expansion.TIMEOUT, Expansion.FAILED, Expansion.UNAUTHORIZED, Expansion.REFUSED}
)


class RecallDegraded(MemoryIndexError):  # noqa: N818  (the name is the reason that users read)
    """A question that should measure the dense leg was answered by the lexical leg alone."""


class ExpansionFailed(MemoryIndexError):  # noqa: N818  (the name is the reason that users read)
    """A question that should be measured with further words got no answer of the language model."""


class BatchEmbedder(Protocol):
    """An embedder that embeds many queries in one request."""

    model: str | None

    async def embed_queries(self, texts: Sequence[str], /) -> EmbeddedBatch:
        """Embed queries in one request; return their vectors in the same order."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """A labelled question.

    `relevant` holds the ids of the memories that answer the question, and `user_id` says whose memories are searched.
    `grades` holds the grades of the memories that were judged; it is empty if the judgements are binary.
    """

    query_id: str
    text: str
    stratum: str
    user_id: str | Everyone
    relevant: frozenset[MemoryId]
    grades: Mapping[MemoryId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The scores of one question in one mode, and whether further words were searched (None: not asked for)."""

    question: Question
    mode: Mode
    scores: measures.Scores
    expanded: bool | None = None


def parse_questions(lines: Iterable[str]) -> list[Question]:
    """Read labelled questions from JSON lines, one object a line, in the form of a labelled set's queries.jsonl.

    Raises:
        InvalidInput: a line is malformed (the message names its number), or there is no question.
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
    text = given.get("text")
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"Line {number} has no text.", "Every question needs a `text`.")
    try:
        judgements = parse_judgements(given)
    except ValueError as error:
        raise InvalidInput(
            f"Line {number} has no usable judgements: {error}.",
            "List the ids of the memories that answer the question in `relevant_ids`, or give `grades`.",
        ) from None
    conv = given.get("conv")
    if isinstance(conv, bool) or not isinstance(conv, str | int | float | None):
        raise InvalidInput(
            f"Line {number} has a conv that is neither a text nor a number.",
            'Give the user whose memories are searched, or leave conv out (or "all") for everybody\'s.',
        )
    return Question(
        query_id=str(given.get("query_id", number)),
        text=text,
        stratum=str(given.get("stratum", UNNAMED)),
        user_id=EVERYONE if conv in {None, "", _ALL} else str(conv),
        relevant=judgements.relevant,
        grades=judgements.grades,
    )


def summarise(outcomes: Sequence[Outcome], modes: Sequence[Mode]) -> dict[str, Any]:
    """Return the mean of each measure by mode, over all questions and for each stratum (kind of question).

    If further words were asked for, `expanded` is the number of questions that got some.
    """
    strata = sorted({one.question.stratum for one in outcomes})
    questions = len({one.question.query_id for one in outcomes})
    asked = any(one.expanded is not None for one in outcomes)
    expanded = len({one.question.query_id for one in outcomes if one.expanded})
    return {
        **_table(outcomes, modes),
        "strata": {name: _table([one for one in outcomes if one.question.stratum == name], modes) for name in strata},
        "queries": questions,
        **({"expanded": expanded} if asked else {}),
    }


def _table(outcomes: Sequence[Outcome], modes: Sequence[Mode]) -> dict[str, dict[str, float]]:
    means = {mode: measures.mean([one.scores for one in outcomes if one.mode == mode]).named() for mode in modes}
    return {measure: {mode: round(means[mode][measure], 5) for mode in modes} for measure in measures.MEASURES}


async def embed_questions(questions: Sequence[Question], embedder: BatchEmbedder) -> dict[str, EmbeddedQuery]:
    """Embed all questions, and return a mapping from each question's text to its vector.

    Raises:
        EmbedderUnavailable: the embedder was busy or unavailable for a minute.
    """
    texts = list(dict.fromkeys(question.text for question in questions))
    found: dict[str, EmbeddedQuery] = {}
    for batch in (texts[start : start + _EMBEDDING_BATCH] for start in range(0, len(texts), _EMBEDDING_BATCH)):
        embedded = await retry(
            partial(embedder.embed_queries, batch), on=_retry_delay, give_up_after=_EMBEDDING_SECONDS
        )
        for text, vector in zip(batch, embedded.vectors, strict=True):
            found[text] = EmbeddedQuery(vector.tolist(), embedder.model, embedded.digest)
    return found


def _retry_delay(error: BaseException) -> bool | float:
    return isinstance(error, EmbedderUnavailable) and (error.retry_after or True)


def require_not_degraded(result: RecallResult, mode: Mode) -> None:
    """Refuse a result in which the dense leg took no part although the mode asks for it.

    Raises:
        RecallDegraded: the message has the reason.
    """
    if result.reason is not None:
        raise RecallDegraded(
            f"Mode {mode} could not be measured: the recall was degraded to lexical ({result.reason}): "
            f"{WHY_DEGRADED[result.reason]}.",
            "Wait until the MemoryIndex is Ready, or evaluate --modes lexical.",
        )


def require_answered(result: RecallResult) -> None:
    """Refuse a result whose query should have been expanded, but got no answer of the language model.

    Raises:
        ExpansionFailed: the message has the reason.
    """
    if result.expansion in _NOT_ANSWERED:
        raise ExpansionFailed(
            f"Expansion could not be measured: the language model gave no answer ({result.expansion}).",
            "Check the address, the model's name and the key, or evaluate without --expand.",
        )


async def evaluate(
    recall: Recall,
    questions: Sequence[Question],
    modes: Sequence[Mode],
    vectors: Mapping[str, EmbeddedQuery],
    *,
    fusion: Fusion | None = None,
    concurrency: int = _DEFAULT_CONCURRENCY,
    share: float = 1.0,
    expand: bool = False,
    progress: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Recall every question in every mode, and return the scores.

    If `fusion` is None, the fusion settings that `recall` was made with are used. At most `concurrency` questions are
    recalled at the same time. After each recall there is a pause, so that recalls take only a `share` (0 to 1) of the
    time and leave room for the recalls of users. With `expand` True, `recall` asks its language model for further
    words.

    Raises:
        RecallDegraded: the dense leg could not take part.
        ExpansionFailed: the language model gave no answer.
    """
    turns = asyncio.Semaphore(concurrency)

    async def measure(question: Question, mode: Mode) -> Outcome:
        async with turns:
            began = time.monotonic()
            query = RecallQuery(
                question.text,
                user_id=question.user_id,
                limit=measures.DEPTH,
                mode=mode,
                vector=vectors.get(question.text),
                fusion=fusion,
                expand=expand,
            )
            result = await recall.recall(query)
            await asyncio.sleep((time.monotonic() - began) * (1 / share - 1))
        require_not_degraded(result, mode)
        require_answered(result)
        progress()
        scores = measures.score([judged_id(one) for one in result.ids], question.relevant, question.grades)
        return Outcome(question, mode, scores, (result.expansion is Expansion.DONE) if expand else None)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(measure(question, mode)) for question in questions for mode in modes]
    except BaseExceptionGroup as errors:
        raise first_of(errors) from None
    return [task.result() for task in tasks]
