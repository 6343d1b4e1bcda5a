"""Reads for the page: from the memories of one user or of everybody, as the command that serves the page was told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from memory_recall.graph.neighbourhood import Neighbourhood, read_neighbourhood, read_text, require_graph
from memory_recall.graph.page.layout import MOST_CONCEPTS, MOST_MEMORIES
from memory_recall.postgres.connection import AnyConnection, DsnSource, opened
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable, describe

_SECONDS = 30.0


class Reader(Protocol):
    """Where the page gets memories from."""

    user: str | None

    async def neighbourhood(self, concept: str) -> Neighbourhood:
        """Return the neighbourhood of a concept; it holds no memory if nobody has the concept."""
        ...

    async def text(self, memory_id: int) -> str:
        """Return the text of a memory, or raise InvalidInput if it may not be shown."""
        ...


class DatabaseReader:
    """Memories of the user `user`, or of everybody if it is None, in one table of a database.

    Each call opens a connection, so a page that nobody uses holds none, and takes at most 30 seconds.
    """

    def __init__(self, source: DsnSource, table: str, user: str | None) -> None:
        self._source = source
        self._table = table
        self.user = user

    async def require_graph(self) -> None:
        """Refuse to begin where nothing can be read.

        Raises:
            MemoryIndexError: the database cannot be read, the graph is not enabled, or a user is named and the table
                does not say whose a memory is.
        """
        async with self._opened() as (connection, table):
            await require_graph(connection, table, self.user)

    async def neighbourhood(self, concept: str) -> Neighbourhood:
        """Return the neighbourhood of a concept; it holds no memory if nobody has the concept."""
        async with self._opened() as (connection, table):
            return await read_neighbourhood(
                connection, table, concept, user=self.user, newest=MOST_MEMORIES, shared=MOST_CONCEPTS
            )

    async def text(self, memory_id: int) -> str:
        """Return the text of a memory, or raise InvalidInput if it may not be shown."""
        async with self._opened() as (connection, table):
            return await read_text(connection, table, memory_id, user=self.user)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[AnyConnection, MemoryTable]]:
        with translated("reading the concept graph"):
            async with asyncio.timeout(_SECONDS), opened(self._source, "memory-graph-page") as connection:
                yield connection, await describe(connection, self._table)
