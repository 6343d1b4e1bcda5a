"""Hybrid recall over a memory store in Postgres: the public API.

`HybridRecall` answers a `RecallQuery` with a `RecallResult`. Everything that a program needs is imported from here, and
optional parts, such as a FastAPI router, from the modules of `memory_recall.contrib`.

A module is imported when one of its names is first used, so a process loads only what it uses. The types of the names
are in `__init__.pyi`.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "memory_recall.embedding.apis": ("EmbedderApi", "EmbedderOptions"),
    "memory_recall.embedding.blocking_client": ("HttpEmbedder",),
    "memory_recall.embedding.client": ("EmbedderClient",),
    "memory_recall.embedding.external_client": ("ExternalEmbedder",),
    "memory_recall.embedding.following": ("FollowingEmbedder",),
    "memory_recall.errors": (
        "DatabaseRejected",
        "DatabaseUnreachable",
        "EmbedderUnavailable",
        "InvalidConfiguration",
        "InvalidInput",
        "LockNotAvailable",
        "MemoryIndexError",
        "MissingExtra",
        "ReplicaRefused",
        "SchemaUnsupported",
    ),
    "memory_recall.postgres.client_certificate": ("ClientCertificate",),
    "memory_recall.postgres.connection": ("DsnFile", "DsnText", "create_pool"),
    "memory_recall.postgres.tls": ("DatabaseTls", "TlsMode"),
    "memory_recall.search.fusion": ("Fusion", "SortBy"),
    "memory_recall.search.hybrid_recall": ("HybridRecall",),
    "memory_recall.search.options": ("RecallOptions",),
    "memory_recall.search.period": ("Period", "PeriodFinder", "iso_period"),
    "memory_recall.search.query": ("EmbeddedQuery", "Lexical", "Mode", "RecallQuery"),
    "memory_recall.search.query_embedding": ("QueryEmbedder",),
    "memory_recall.search.recall": ("Recall",),
    "memory_recall.search.result": (
        "Degraded",
        "Evidence",
        "Expansion",
        "RecallResult",
        "RecalledMemory",
        "Reranking",
        "Timings",
    ),
    "memory_recall.search.sql.filters": ("Filters",),
    "memory_recall.search.sql.visibility": ("EVERYONE", "Everyone"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_MODULES)  # noqa: PLE0605  (type checkers read the names in __init__.pyi)


def __getattr__(name: str) -> Any:  # noqa: ANN401  (the types are those in __init__.pyi)
    """Import the module of a public name on the first use of the name.

    Raises:
        AttributeError: the package has no such name.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, those not yet imported too."""
    return sorted({*globals(), *__all__})
