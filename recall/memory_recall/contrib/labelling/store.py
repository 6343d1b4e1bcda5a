"""Reads memories and pools from the database, for labelling."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from memory_recall.contrib.labelling.labels import Asked, Origin
from memory_recall.contrib.labelling.memories_sql import (
    DATABASE_NAME,
    draw_statement,
    existing_statement,
    read_statement,
)
from memory_recall.errors import DatabaseRejected, EmbedderUnavailable, InvalidInput, first_of
from memory_recall.evaluation.evaluate import BatchEmbedder, Question, embed_questions, require_not_degraded
from memory_recall.evaluation.measures import DEPTH
from memory_recall.evaluation.tuning import settings as fusions
from memory_recall.postgres.connection import Pool
from memory_recall.postgres.driver_errors import translated
from memory_recall.postgres.identity_sql import is_unreadable, read_identity
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.columns.owners import owner_named
from memory_recall.schema.table import MemoryTable
from memory_recall.search.fusion import default_fusion
from memory_recall.search.query import RecallQuery
from memory_recall.search.recall import Recall
from memory_recall.search.sql.visibility import EVERYONE

_READ_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """What the person sees of a memory: nothing that tells where it ranked or what found it."""

    content: str
    category: str | None = None
    tags: str | None = None
    created: str | None = None


class Store(Protocol):
    """Where a `Labeller` gets memories and pools from."""

    async def read(self, memory_id: MemoryId, *, user: str | None) -> ShownMemory | None:
        """Return a memory of a user, or of anybody if `user` is None; None if it is sensitive, deleted or not there."""
        ...

    async def pool(self, question: Asked) -> list[MemoryId]:
        """Return the ids of the memories to judge for a question, in no particular order."""
        ...


class PostgresStore:
    """The memories of one table in Postgres.

    `legs` are recalls that differ in their lexical leg. `embedder` is needed only for pools, else it may be
    None.
    """

    def __init__(self, pool: Pool, table: MemoryTable, legs: Sequence[Recall], embedder: BatchEmbedder | None) -> None:
        self._pool = pool
        self._table = table
        self._legs = legs
        self._embedder = embedder

    async def origin(self) -> Origin:
        """Return the table and the database that hold the memories; without the server where the role may not read it.

        Raises:
            DatabaseUnreachable, DatabaseRejected: the database does not answer.
        """
        with translated("finding out which database this is"):
            async with asyncio.timeout(_READ_SECONDS), self._pool.acquire() as connection:
                name = await connection.fetchval(DATABASE_NAME)
                try:
                    server = (await read_identity(connection)).system_identifier
                except DatabaseRejected as error:
                    if not is_unreadable(error):
                        raise
                    server = None
        return Origin(server=server, database=name, table=f"{self._table.schema}.{self._table.name}")

    async def count_existing(self, ids: Sequence[MemoryId]) -> int:
        """Return how many memories with these ids the table has, those that may not be shown among them."""
        found = [one for one in ids if self._holds(one)]
        return int((await self._fetch(existing_statement(self._table), found))[0]["count"])

    def _holds(self, memory_id: MemoryId) -> bool:
        try:
            self._table.key.checked(memory_id)
        except InvalidInput:  # an id of another table
            return False
        return True

    async def draw(self, count: int, *, seed: int, user: str | None, without: Collection[MemoryId]) -> list[MemoryId]:
        """Draw at most `count` memories that are neither sensitive nor deleted, and none of the ids in `without`.

        They are drawn from the memories of one user, or from everybody's if `user` is None.

        Raises:
            InvalidInput: the table does not say whose a memory is, or has no such users.
        """
        owner = [] if user is None else [owner_named(self._table, user)]
        statement = draw_statement(self._table, of_user=user is not None)
        return [row["id"] for row in await self._fetch(statement, count, str(seed), list(without), *owner)]

    async def read(self, memory_id: MemoryId, *, user: str | None) -> ShownMemory | None:
        """Return a memory of a user, or of anybody if `user` is None; None if it is sensitive, deleted or not there.

        Raises:
            InvalidInput: the table does not say whose a memory is, or has no such users.
        """
        owner = [] if user is None else [owner_named(self._table, user)]
        statement = read_statement(self._table, of_user=user is not None)
        if not self._holds(memory_id):
            return None
        rows = await self._fetch(statement, self._table.key.checked(memory_id), *owner)
        if not rows:
            return None
        created = rows[0]["created_at"]
        text = {name: None if rows[0][name] is None else str(rows[0][name]) for name in ("category", "tags")}
        return ShownMemory(rows[0]["content"], created=None if created is None else str(created)[:10], **text)

    async def pool(self, question: Asked) -> list[MemoryId]:
        """Return the first ten memories of each leg and of each fusion that `memory tune` tries.

        No sensitive memory is among them.

        Raises:
            InvalidInput: the table does not say whose a memory is, or cannot have the question's user.
            EmbedderUnavailable: there is no embedder, or it did not answer.
            RecallDegraded: the dense leg could not take part, so its answers would be missing.
        """
        if self._embedder is None:
            raise EmbedderUnavailable(
                "The answers of the dense leg cannot be pooled without an embedder.", "Set MEMORY_EMBEDDER_URL."
            )
        user = EVERYONE if question.conv is None else owner_named(self._table, question.conv)
        asked = Question(question.query_id, question.text, question.stratum, user, frozenset())
        vector = (await embed_questions([asked], self._embedder))[question.text]
        text = question.text
        lexical = RecallQuery(text, user_id=user, limit=DEPTH, mode="lexical")
        dense = RecallQuery(text, user_id=user, limit=DEPTH, mode="dense", vector=vector)
        hybrid = [
            RecallQuery(text, user_id=user, limit=DEPTH, mode="hybrid", vector=vector, fusion=fusion)
            for fusion in fusions(default_fusion(vector.model))
        ]
        first = self._legs[0]
        asks = [(leg, lexical) for leg in self._legs] + [(first, query) for query in (dense, *hybrid)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._found(leg, query)) for leg, query in asks]
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
        found = {memory_id for task in tasks for memory_id in task.result()}
        return sorted(found | await self._shareable(question))

    async def _found(self, leg: Recall, query: RecallQuery) -> list[MemoryId]:
        result = await leg.recall(query)
        require_not_degraded(result, query.mode)
        return [memory.id for memory in result.memories if not memory.is_sensitive]

    async def _shareable(self, question: Asked) -> set[MemoryId]:
        return {one for one in question.known if await self.read(one, user=question.conv) is not None}

    async def _fetch(self, statement: str, *values: object) -> list[Any]:
        with translated("reading memories"):
            async with asyncio.timeout(_READ_SECONDS):
                return await self._pool.fetch(statement, *values)
