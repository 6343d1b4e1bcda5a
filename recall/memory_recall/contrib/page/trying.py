"""A tried recall as the page shows it: its memories with place and scores, and what their relevance is measured by.

It demands no relevance, so that every memory has one and none is held back. The page holds back by the chosen level.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from memory_recall.errors import InvalidInput
from memory_recall.search.query import RecallQuery
from memory_recall.search.recall import Recall
from memory_recall.search.relevance import LEVELS, UNKNOWN_RELEVANCE, LeastRelevance, RelevanceScale
from memory_recall.search.result import WHY_DEGRADED, Evidence, RecalledMemory, RecallResult
from memory_recall.search.sql.visibility import Everyone

MOST_TRIED = 20


@dataclass(frozen=True, slots=True)
class NamedLevel:
    """A level that the page names, with the least relevance (0 to 1) that it demands by meaning and by words alone."""

    name: str
    by_meaning: float
    by_words: float


@dataclass(frozen=True, slots=True)
class TriedLeg:
    """The rank (from 1) and the score of a memory in a leg.

    The rank is None if the leg did not find the memory, and the score if it was not computed.
    """

    leg: str
    rank: int | None
    score: float | None


@dataclass(frozen=True, slots=True)
class TriedMemory:
    """A memory of a tried recall. `place` counts from 1, and `score` is that of the fusion.

    `graph_score` (above 0 to 1) is None if the concept graph did not reach the memory. `relevance` (0 to 1) is None
    where it is not known, and `measured` is then empty. `by_words` says whether words alone decided it. The content of
    a sensitive memory is masked.
    """

    place: int
    id: str
    content: str
    about: str
    score: float
    legs: tuple[TriedLeg, ...]
    graph_score: float | None
    relevance: float | None
    by_words: bool
    measured: str


@dataclass(frozen=True, slots=True)
class Tried:
    """A tried recall. `notes` are sentences on what took no part in it, and `milliseconds` are the times of its steps.

    `basis` says by what relevance was measured, or why it was not.
    """

    memories: tuple[TriedMemory, ...]
    notes: tuple[str, ...]
    basis: str
    relevance_known: bool
    milliseconds: Mapping[str, float]


async def try_recall(recall: Recall, text: str, *, user: str | Everyone) -> Tried:
    """Recall at most 20 memories of a user, or of everyone, and return what the page shows of them.

    Raises:
        InvalidInput: the text has no word, or the table has no such users.
        DatabaseUnreachable: the database cannot be searched.
    """
    if not text.strip():
        raise InvalidInput("There is no question.", "Write at least one word.")
    query = RecallQuery(text, user_id=user, limit=MOST_TRIED, least_relevance=0.0, explain=True)
    return tried(await recall.recall(query))


def tried(result: RecallResult) -> Tried:
    """Return what the page shows of a result."""
    basis = result.relevance_basis
    reason, notes = result.reason, list[str]()
    if reason is not None:
        notes.append(f"Words alone answered, without meaning: {reason}: {WHY_DEGRADED[reason]}.")
    if basis in UNKNOWN_RELEVANCE:
        notes.append(f"Nothing is held back: {UNKNOWN_RELEVANCE[basis]}.")
    memories = tuple(_tried(place, one, result.relevance_scale) for place, one in enumerate(result.memories, 1))
    return Tried(memories, tuple(notes), basis, basis.known, _milliseconds(result))


def named_levels() -> tuple[NamedLevel, ...]:
    """Return the named levels of least relevance, from the one that demands nothing to the strictest."""
    demanded = {name: least or LeastRelevance(0.0, 0.0) for name, least in LEVELS.items()}
    return tuple(NamedLevel(name, least.by_meaning, least.by_words) for name, least in demanded.items())


def measured(evidence: Evidence, scale: RelevanceScale) -> str:
    """Return a sentence on what the relevance of a memory with this evidence was measured by."""
    full = scale.max_lexical_score or 0.0
    words = f"the score of its words is {evidence.lexical_score or 0.0:.2f}"
    words = f"{words} and the best {scale.most_lexical or 0.0:.2f}, where {full:.2f} is a full match"
    if not scale.by_words(evidence.dense_score):
        cosine = f"Its cosine is {evidence.dense_score or 0.0:.3f} and the best {scale.most_dense or 0.0:.3f}"
        return f"{cosine}, where {scale.usual_cosine or 0.0:.3f} is usual for a prompt that no memory fits; {words}."
    without = "the memory has no vector" if scale.most_dense is not None else "the recall was by words alone"
    return f"Words alone decided, since {without}: {words}."


def _tried(place: int, memory: RecalledMemory, scale: RelevanceScale | None) -> TriedMemory:
    evidence = memory.evidence
    return TriedMemory(
        place=place,
        id=str(memory.id),
        content=memory.content,
        about=_about(memory),
        score=memory.rank,
        legs=(
            TriedLeg("lexical", evidence.lexical_rank, evidence.lexical_score),
            TriedLeg("dense", evidence.dense_rank, evidence.dense_score),
        ),
        graph_score=evidence.graph_score,
        relevance=memory.relevance,
        by_words=scale is not None and scale.by_words(evidence.dense_score),
        measured="" if scale is None else measured(evidence, scale),
    )


def _about(memory: RecalledMemory) -> str:
    parts = (
        f"memory {memory.id}",
        None if memory.created_at is None else f"{memory.created_at:%Y-%m-%d}",
        memory.category,
        memory.tags,
        memory.owner,
        "sensitive" if memory.is_sensitive else None,
        None if memory.superseded_by is None else f"superseded by {memory.superseded_by}",
    )
    return " · ".join(part for part in parts if part)


def _milliseconds(result: RecallResult) -> Mapping[str, float]:
    timings = result.timings
    legs = {f"{name} leg": milliseconds for name, milliseconds in timings.legs.items()}
    return {"total": timings.total, "embedding": timings.embedding, "database": timings.database, **legs}
