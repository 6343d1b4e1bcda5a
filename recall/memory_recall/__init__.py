"""Hybrid recall over a memory store in Postgres: the public API.

`HybridRecall` answers a `RecallQuery` with a `RecallResult`. Everything that a program needs is imported from here.
Three names need an optional dependency and are imported on first use: `create_recall_router` (`memory-recall[api]`),
`RecallMetrics` (`memory-recall[metrics]`) and `find_period` (`memory-recall[temporal]`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from memory_recall.embedding.blocking_client import HttpEmbedder
from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.following import FollowingEmbedder
from memory_recall.embedding.voyage import VoyageClient
from memory_recall.errors import (
    DatabaseRejected,
    DatabaseUnreachable,
    EmbedderUnavailable,
    InvalidConfiguration,
    InvalidInput,
    LockNotAvailable,
    MemoryIndexError,
    SchemaUnsupported,
)
from memory_recall.integrations.sqlite import SqliteRecall
from memory_recall.search.fusion import Fusion, SortBy
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.period import Period, PeriodFinder
from memory_recall.search.query import EmbeddedQuery, Lexical, Mode, RecallQuery
from memory_recall.search.query_embedding import QueryEmbedder
from memory_recall.search.result import Degraded, Evidence, RecalledMemory, RecallResult, Timings
from memory_recall.search.sql.filters import Filters
from memory_recall.search.sql.visibility import EVERYONE, Everyone

if TYPE_CHECKING:
    from memory_recall.integrations.fastapi import create_recall_router
    from memory_recall.integrations.prometheus import RecallMetrics
    from memory_recall.search.dates import find_period

__all__ = [
    "EVERYONE",
    "DatabaseRejected",
    "DatabaseUnreachable",
    "Degraded",
    "EmbeddedQuery",
    "EmbedderClient",
    "EmbedderUnavailable",
    "Everyone",
    "Evidence",
    "Filters",
    "FollowingEmbedder",
    "Fusion",
    "HttpEmbedder",
    "HybridRecall",
    "InvalidConfiguration",
    "InvalidInput",
    "Lexical",
    "LockNotAvailable",
    "MemoryIndexError",
    "Mode",
    "Period",
    "PeriodFinder",
    "QueryEmbedder",
    "RecallMetrics",
    "RecallQuery",
    "RecallResult",
    "RecalledMemory",
    "SchemaUnsupported",
    "SortBy",
    "SqliteRecall",
    "Timings",
    "VoyageClient",
    "create_recall_router",
    "find_period",
]

_NEED_AN_EXTRA = {
    "RecallMetrics": "memory_recall.integrations.prometheus",
    "create_recall_router": "memory_recall.integrations.fastapi",
    "find_period": "memory_recall.search.dates",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  (the types are those of the imports above)
    """Import a public name that needs an optional dependency, on its first use.

    Raises:
        AttributeError: the package has no such name.
    """
    if name in _NEED_AN_EXTRA:
        return getattr(import_module(_NEED_AN_EXTRA[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
