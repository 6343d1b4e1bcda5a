"""Facts about the database, from the library's catalog queries; its errors become problems.

The connection URI is used here and nowhere else, and passed on inside an object that hides it.
"""

import asyncio

from memory_operator.api.reasons import Reason
from memory_operator.reconcile.facts import DatabaseFacts, Problem
from memory_recall import status
from memory_recall.errors import MemoryIndexError
from memory_recall.hnsw.definition import IndexFacts
from memory_recall.postgres.connection import DsnText, connect
from memory_recall.schema.revisions import HEAD_REVISION

TIMEOUT_SECONDS = 30.0


async def inspect(dsn: str, table: str) -> DatabaseFacts | Problem:
    """Return what the catalog says now, or why it cannot be read; takes at most TIMEOUT_SECONDS."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            connection = await connect(
                DsnText(dsn), application_name="memory-operator", connect_timeout=15.0, command_timeout=20.0
            )
            try:
                found = await status.inspect(connection, table)
            finally:
                await connection.close(timeout=2.0)
    except MemoryIndexError as error:
        return Problem(Reason.from_code(error.reason, Reason.DATABASE_ERROR), error.message, error.remedy)
    except TimeoutError:
        return Problem(Reason.DATABASE_UNREACHABLE, f"The database did not answer within {TIMEOUT_SECONDS:g} s.")
    if found.in_recovery:
        message = "The connection leads to a replica, which cannot be written."
        return Problem(Reason.DATABASE_UNREACHABLE, message, "Point the connection URI at the -rw service.")
    return to_database_facts(found)


def to_database_facts(found: status.DatabaseFacts) -> DatabaseFacts:
    """Convert the library's facts to those that the decisions need."""
    revision = found.schema_revision or ""
    return DatabaseFacts(
        owner=found.database_owner,
        server_version=found.server_version,
        extension_version=found.extension_version,
        extension_available=found.extension_available,
        schema_revision=found.schema_revision,
        schema_current=revision == HEAD_REVISION and not found.schema_differences,
        schema_differences=found.schema_differences,
        schema_ahead=revision > HEAD_REVISION,
        column_dimensions=found.embedding_dimensions,
        active_model=found.active_model.name if found.active_model else None,
        active_digest=found.active_model.digest if found.active_model else None,
        active_pooling=found.active_model.pooling if found.active_model else None,
        active_url=found.active_model.embedder_url if found.active_model else None,
        swap_stage=found.swap.stage if found.swap else None,
        swap_message=found.swap.message if found.swap else "",
        next_model=found.next_model.name if found.next_model else None,
        rows=found.rows,
        index_valid=found.index.valid,
        index_progress=found.index.progress.fraction if found.index.progress else None,
        index_parameters=_parameters(found.index),
        wanted_at=getattr(found, "wanted_at", None),  # a library that does not record it has no such fact
    )


def _parameters(index: IndexFacts) -> tuple[int, int] | None:
    if not index.ours or index.m is None or index.ef_construction is None:
        return None
    return index.m, index.ef_construction
