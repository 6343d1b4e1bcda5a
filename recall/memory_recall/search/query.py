"""What a recall is asked and what it answers: plain data that Postgres and SQLite, router and command line share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from memory_recall.errors import InvalidInput

Mode = Literal["hybrid", "lexical", "dense"]

MAX_LIMIT = 500
MAX_QUERY_CHARACTERS = 50_000  # Postgres refuses texts of a megabyte; nobody's question is that long


class Degraded(StrEnum):
    """Why a recall that should have used meaning was answered by words alone."""

    NO_EMBEDDER = "NoEmbedder"
    SENSITIVE_QUERY = "SensitiveQuery"
    EMBEDDER_TIMEOUT = "EmbedderTimeout"
    EMBEDDER_FAILED = "EmbedderFailed"
    EMBEDDER_REFUSED = "EmbedderRefused"
    CIRCUIT_OPEN = "EmbedderCircuitOpen"
    EXTENSION_MISSING = "ExtensionMissing"
    SCHEMA_MISSING = "SchemaMissing"
    INDEX_MISSING = "IndexMissing"
    MODEL_MISMATCH = "ModelMismatch"
    DIMENSION_MISMATCH = "DimensionMismatch"
    DENSE_FAILED = "DenseLegFailed"


@dataclass(frozen=True, slots=True)
class Evidence:
    """How each leg judged a memory; None where it did not find it (scores may be computed nevertheless)."""

    lexical_rank: int | None
    lexical_score: float | None
    dense_rank: int | None
    dense_score: float | None


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """One memory as the API returns it; a sensitive one comes without its content."""

    id: int
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


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds. `legs` only when asked for, since measuring them runs the statement a second time."""

    total: float
    embedding: float = 0.0
    database: float = 0.0
    legs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecallResult:
    """The page of memories, and whether meaning took part in finding them."""

    memories: tuple[RecalledMemory, ...]
    mode: Mode
    reason: Degraded | None
    timings: Timings

    @property
    def degraded(self) -> bool:
        """Whether the answer is that of the lexical leg although more was asked for."""
        return self.reason is not None

    @property
    def ids(self) -> list[int]:
        """The memories' ids, best first."""
        return [memory.id for memory in self.memories]


def cleaned(query: str) -> str:
    """The query without what Postgres cannot take: NUL, lone surrogates, and more text than a tsvector holds."""
    return query.replace("\x00", " ").encode("utf-8", "ignore").decode("utf-8").strip()[:MAX_QUERY_CHARACTERS]


def check_page(limit: int, offset: int) -> None:
    """Refuse a page that makes no sense.

    Raises:
        InvalidInput: `limit` or `offset` is out of range.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"The limit is {limit}.", f"Ask for 1 to {MAX_LIMIT} memories.")
    if offset < 0:
        raise InvalidInput(f"The offset is {offset}.", "Start at zero or later.")


def memory_of(row: Mapping[str, Any]) -> RecalledMemory:
    """A row of the recall statement."""
    return RecalledMemory(
        id=row["id"],
        content=row["content"],
        category=row["category"],
        tags=row["tags"],
        importance=row["importance"],
        is_sensitive=row["is_sensitive"],
        rank=row["score"],
        owner=row["owner"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        evidence=Evidence(row["lexical_rank"], row["lexical_score"], row["dense_rank"], row["dense_score"]),
    )
