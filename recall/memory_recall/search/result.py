"""The result of a recall: plain data for the Postgres and SQLite recalls, the router and the commands."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from math import isfinite
from typing import Any

from memory_recall.schema.columns.keys import MemoryId
from memory_recall.search.query import Mode
from memory_recall.search.relevance import RelevanceBasis, RelevanceScale


class Degraded(StrEnum):
    """The reason why the dense leg took no part in a recall that requested it."""

    NO_EMBEDDER = "NoEmbedder"
    SENSITIVE_QUERY = "SensitiveQuery"
    EMBEDDER_TIMEOUT = "EmbedderTimeout"
    EMBEDDER_BUSY = "EmbedderBusy"
    EMBEDDER_FAILED = "EmbedderFailed"
    EMBEDDER_UNAUTHORIZED = "EmbedderUnauthorized"
    EMBEDDER_REFUSED = "EmbedderRefused"
    CIRCUIT_OPEN = "EmbedderCircuitOpen"
    EXTENSION_MISSING = "ExtensionMissing"
    SCHEMA_MISSING = "SchemaMissing"
    INDEX_MISSING = "IndexMissing"
    MODEL_MISMATCH = "ModelMismatch"
    DIMENSION_MISMATCH = "DimensionMismatch"
    DENSE_FAILED = "DenseLegFailed"


WHY_DEGRADED: Mapping[Degraded, str] = {
    Degraded.NO_EMBEDDER: "no embedder is configured; set MEMORY_EMBEDDER_URL",
    Degraded.SENSITIVE_QUERY: "a sensitive query is not sent to a hosted embedder",
    Degraded.EMBEDDER_TIMEOUT: "the embedder did not answer in time; see whether it is busy or has just been started",
    Degraded.EMBEDDER_BUSY: "the embedder has as many queries as it answers in time; repeat the recall later",
    Degraded.EMBEDDER_FAILED: "the embedder did not answer; see that it runs and that MEMORY_EMBEDDER_URL leads to it",
    Degraded.EMBEDDER_UNAUTHORIZED: "the embedder refused the API key; correct MEMORY_EMBEDDER_API_KEY_FILE",
    Degraded.EMBEDDER_REFUSED: "the embedder refused this query",
    Degraded.CIRCUIT_OPEN: "the embedder failed a moment ago; see that it runs, and repeat the recall in some seconds",
    Degraded.EXTENSION_MISSING: "pgvector is not created in this database; a superuser runs CREATE EXTENSION vector",
    Degraded.SCHEMA_MISSING: "the table is not migrated; run memory migrate, or memory adopt with --apply",
    Degraded.INDEX_MISSING: (
        "the table has no valid vector index; run memory backfill, which also makes the words that are missing, then "
        "memory index build (in a cluster the operator does both; memory status says how far it is)"
    ),
    Degraded.MODEL_MISMATCH: "another model made the vectors of the table; use the one that memory status names",
    Degraded.DIMENSION_MISMATCH: "the table has vectors of other dimensions; use the model that memory status names",
    Degraded.DENSE_FAILED: "Postgres refused the dense leg; its log says why",
}
"""Why meaning took no part in a recall, and what to do about it, to be shown to a person who has the commands."""


class Reranking(StrEnum):
    """Whether the second stage reranked a result, or the reason why it did not."""

    DONE = "Reranked"
    OFF = "NoSecondStage"
    OTHER_ORDER = "NotByRelevance"
    BEYOND_DEPTH = "PageBeyondDepth"
    NOTHING_TO_RERANK = "FewerThanTwoTexts"
    SENSITIVE_QUERY = "SensitiveQuery"
    PAUSED = "PausedAfterFailure"
    TIMEOUT = "RerankerTimeout"
    FAILED = "RerankerFailed"
    UNAUTHORIZED = "RerankerUnauthorized"
    REFUSED = "RerankerRefused"


class Expansion(StrEnum):
    """Whether a language model's further words were searched, or the reason why they were not."""

    DONE = "Expanded"
    OFF = "NoExpansion"
    NOT_ASKED = "NotAskedFor"
    NOT_BY_SCORE = "NotByScore"
    ONLY_DENSE = "OnlyByMeaning"
    SENSITIVE_QUERY = "SensitiveQuery"
    PAUSED = "PausedAfterFailure"
    TIMEOUT = "ExpansionTimeout"
    FAILED = "ExpansionFailed"
    UNAUTHORIZED = "ExpansionUnauthorized"
    REFUSED = "ExpansionRefused"
    UNUSABLE = "AnswerUnusable"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A memory's rank (from 1) and score in each leg.

    The rank is None if the leg did not find the memory; the score may still have been computed. `graph_score` (above 0
    to 1) is the score in the concept graph, or None if the graph did not reach the memory or took no part. A memory
    with a graph score and without ranks was found by the graph alone.
    """

    lexical_rank: int | None
    lexical_score: float | None
    dense_rank: int | None
    dense_score: float | None
    graph_score: float | None = None


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """A recalled memory. The content of a sensitive memory is masked. `rank` is the score of the fusion.

    `id` is an integer if the table's key is one, and else a text; that of a key of type `uuid` is in lower case.
    `superseded_by` is the id of the newest memory that supersedes this one according to `memory curate`, or None.
    `relevance` (0 to 1) says how likely the memory answers the query at all; it is None unless the query asked for it
    and it is known.
    """

    id: MemoryId
    content: str
    category: str | None
    tags: str | None
    importance: float | None
    is_sensitive: bool
    rank: float
    owner: str | None
    created_at: datetime | None
    updated_at: datetime | None
    evidence: Evidence
    superseded_by: MemoryId | None = None
    relevance: float | None = None


EVIDENCE_FIELDS = tuple(one.name for one in fields(Evidence) if one.name != "graph_score")
"""The evidence that every recall has; `graph_score` comes from a recall with the graph leg only."""
_NOT_SELECTED = {"evidence", "superseded_by", "relevance"}
MEMORY_FIELDS = tuple(one.name for one in fields(RecalledMemory) if one.name not in _NOT_SELECTED)


def memory_from(row: Mapping[str, Any]) -> RecalledMemory:
    """Make a memory from a row with the columns `MEMORY_FIELDS` and `EVIDENCE_FIELDS`.

    It may have the columns `graph_score`, `superseded_by` and `relevance`, too.
    """
    evidence = Evidence(**{name: row[name] for name in EVIDENCE_FIELDS}, graph_score=row.get("graph_score"))
    memory = {name: row[name] for name in MEMORY_FIELDS}
    importance = memory["importance"]
    if isinstance(importance, Decimal):
        importance = float(importance)
    # JSON has no infinity, and one row that cannot be written out would keep everybody's answers back.
    memory["importance"] = importance if importance is not None and isfinite(importance) else None
    return RecalledMemory(
        **memory, evidence=evidence, superseded_by=row.get("superseded_by"), relevance=row.get("relevance")
    )


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of a recall in milliseconds. `legs` is filled only for a query with `explain` True.

    `expansion` is how long the recall waited for further words after its query was embedded.
    """

    total: float
    embedding: float = 0.0
    database: float = 0.0
    reranking: float = 0.0
    legs: Mapping[str, float] = field(default_factory=dict)
    expansion: float = 0.0


@dataclass(frozen=True, slots=True)
class RecallResult:
    """The page of memories, best first. `reason` says why a requested dense leg took no part; else it is None.

    `reranking` says whether a second stage ordered the memories, or why not, and `expansion` whether the words of a
    language model were searched, too. `reader` is the user who asked, written like the owners of the memories; it is
    None if nobody is named. `held_back` is how many memories of the page were less relevant than the query demands.
    `relevance_basis` says what relevance was computed from, or why it was not, and `relevance_scale` what by.
    `left_out` is how many memories did not fit into the tokens that the query allows.
    """

    memories: tuple[RecalledMemory, ...]
    mode: Mode
    reason: Degraded | None
    timings: Timings
    reranking: Reranking = Reranking.OFF
    expansion: Expansion = Expansion.OFF
    reader: str | None = None
    relevance_basis: RelevanceBasis = RelevanceBasis.NOT_ASKED
    relevance_scale: RelevanceScale | None = None
    held_back: int = 0
    left_out: int = 0

    @property
    def degraded(self) -> bool:
        """Whether the lexical leg alone answered although the dense leg was requested."""
        return self.reason is not None

    @property
    def reranked(self) -> bool:
        """Whether the second stage ordered the memories."""
        return self.reranking is Reranking.DONE

    @property
    def ids(self) -> list[MemoryId]:
        """The memories' ids, best first."""
        return [memory.id for memory in self.memories]
