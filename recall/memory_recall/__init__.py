"""Hybrid recall over a memory store in Postgres: the public API.

`HybridRecall` answers a `RecallQuery` with a `RecallResult`. Everything that a program needs is imported from here.

The module of a name is imported on the first use of the name, so a process loads only what it uses, and an optional
dependency is needed only by the names that use it: `create_recall_router` needs `memory-recall[api]`, `RecallMetrics`
needs `memory-recall[metrics]`, and `find_period` needs `memory-recall[temporal]`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory_recall.embedding.blocking_client import HttpEmbedder
    from memory_recall.embedding.chat_client import ChatClient
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
        MissingExtra,
        SchemaUnsupported,
    )
    from memory_recall.integrations.fastapi import create_recall_router
    from memory_recall.integrations.prometheus import RecallMetrics
    from memory_recall.integrations.sqlite import SqliteRecall
    from memory_recall.postgres.connection import DsnFile, DsnText, create_pool
    from memory_recall.postgres.tls import DatabaseTls, TlsMode
    from memory_recall.search.dates import find_period
    from memory_recall.search.fusion import Fusion, SortBy
    from memory_recall.search.hybrid_recall import HybridRecall
    from memory_recall.search.period import Period, PeriodFinder
    from memory_recall.search.query import EmbeddedQuery, Lexical, Mode, RecallQuery
    from memory_recall.search.query_embedding import QueryEmbedder
    from memory_recall.search.query_expansion import LanguageModel, QueryExpansion
    from memory_recall.search.result import (
        Degraded,
        Evidence,
        Expansion,
        RecalledMemory,
        RecallResult,
        Reranking,
        Timings,
    )
    from memory_recall.search.second_stage import Reranker, SecondStage
    from memory_recall.search.sql.filters import Filters
    from memory_recall.search.sql.visibility import EVERYONE, Everyone

__all__ = [
    "EVERYONE",
    "ChatClient",
    "DatabaseRejected",
    "DatabaseTls",
    "DatabaseUnreachable",
    "Degraded",
    "DsnFile",
    "DsnText",
    "EmbeddedQuery",
    "EmbedderClient",
    "EmbedderUnavailable",
    "Everyone",
    "Evidence",
    "Expansion",
    "Filters",
    "FollowingEmbedder",
    "Fusion",
    "HttpEmbedder",
    "HybridRecall",
    "InvalidConfiguration",
    "InvalidInput",
    "LanguageModel",
    "Lexical",
    "LockNotAvailable",
    "MemoryIndexError",
    "MissingExtra",
    "Mode",
    "Period",
    "PeriodFinder",
    "QueryEmbedder",
    "QueryExpansion",
    "RecallMetrics",
    "RecallQuery",
    "RecallResult",
    "RecalledMemory",
    "Reranker",
    "Reranking",
    "SchemaUnsupported",
    "SecondStage",
    "SortBy",
    "SqliteRecall",
    "Timings",
    "TlsMode",
    "VoyageClient",
    "create_pool",
    "create_recall_router",
    "find_period",
]

_MODULES = {
    "ChatClient": "memory_recall.embedding.chat_client",
    "DatabaseRejected": "memory_recall.errors",
    "DatabaseTls": "memory_recall.postgres.tls",
    "DatabaseUnreachable": "memory_recall.errors",
    "Degraded": "memory_recall.search.result",
    "DsnFile": "memory_recall.postgres.connection",
    "DsnText": "memory_recall.postgres.connection",
    "EVERYONE": "memory_recall.search.sql.visibility",
    "EmbeddedQuery": "memory_recall.search.query",
    "EmbedderClient": "memory_recall.embedding.client",
    "EmbedderUnavailable": "memory_recall.errors",
    "Everyone": "memory_recall.search.sql.visibility",
    "Evidence": "memory_recall.search.result",
    "Expansion": "memory_recall.search.result",
    "Filters": "memory_recall.search.sql.filters",
    "FollowingEmbedder": "memory_recall.embedding.following",
    "Fusion": "memory_recall.search.fusion",
    "HttpEmbedder": "memory_recall.embedding.blocking_client",
    "HybridRecall": "memory_recall.search.hybrid_recall",
    "InvalidConfiguration": "memory_recall.errors",
    "InvalidInput": "memory_recall.errors",
    "LanguageModel": "memory_recall.search.query_expansion",
    "Lexical": "memory_recall.search.query",
    "LockNotAvailable": "memory_recall.errors",
    "MemoryIndexError": "memory_recall.errors",
    "MissingExtra": "memory_recall.errors",
    "Mode": "memory_recall.search.query",
    "Period": "memory_recall.search.period",
    "PeriodFinder": "memory_recall.search.period",
    "QueryEmbedder": "memory_recall.search.query_embedding",
    "QueryExpansion": "memory_recall.search.query_expansion",
    "RecallMetrics": "memory_recall.integrations.prometheus",
    "RecallQuery": "memory_recall.search.query",
    "RecallResult": "memory_recall.search.result",
    "RecalledMemory": "memory_recall.search.result",
    "Reranker": "memory_recall.search.second_stage",
    "Reranking": "memory_recall.search.result",
    "SchemaUnsupported": "memory_recall.errors",
    "SecondStage": "memory_recall.search.second_stage",
    "SortBy": "memory_recall.search.fusion",
    "SqliteRecall": "memory_recall.integrations.sqlite",
    "Timings": "memory_recall.search.result",
    "TlsMode": "memory_recall.postgres.tls",
    "VoyageClient": "memory_recall.embedding.voyage",
    "create_pool": "memory_recall.postgres.connection",
    "create_recall_router": "memory_recall.integrations.fastapi",
    "find_period": "memory_recall.search.dates",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  (the types are those of the imports above)
    """Import the module of a public name on the first use of the name.

    Raises:
        AttributeError: the package has no such name.
        MissingExtra: the name needs an optional dependency that is not installed; it is an ImportError, too.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, those not yet imported too."""
    return sorted({*globals(), *__all__})
