"""Finds restatements in a table of memories and proposes what to do with them; nothing in the database is changed."""

import asyncio
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from memory_recall.contrib.curation.candidates_sql import (
    count_too_long,
    read_frequencies,
    read_pairs,
    read_unchanged,
    require_curatable,
)
from memory_recall.contrib.curation.decisions import THRESHOLD, judge, score_all
from memory_recall.contrib.curation.features import Frequencies, Pair
from memory_recall.contrib.curation.judging import Ids, Judging, JudgingModel, Lookup, judge_by_model
from memory_recall.contrib.curation.proposal_file import Proposal, proposal_from
from memory_recall.postgres.connection import AnyConnection
from memory_recall.schema.supersessions import has_links
from memory_recall.schema.table import MemoryTable


async def find_proposals(
    connection: AnyConnection, table: MemoryTable, *, user: str | None, since: datetime | None
) -> list[Proposal]:
    """Return proposals for the memories since `since` and the older ones that they may restate, best first.

    With `user` None, the memories of all owners are read; a memory is only ever compared with others of its owner.

    Raises:
        InvalidInput: there are too many memories for one run, or the table does not say whose a memory is.
        SchemaUnsupported: the table lacks a column by which memories are compared.
    """
    pairs, frequencies, _ = await _read(connection, table, user=user, since=since)
    return [proposal_from(one) for one in judge(pairs, frequencies)]


async def find_judged(
    connection: AnyConnection,
    table: MemoryTable,
    model: JudgingModel,
    *,
    user: str | None,
    since: datetime | None,
    most: int,
    progress: Callable[[int, int], None],
) -> Judging:
    """Return what `find_proposals` would propose if a language model also scored the `most` best pairs.

    `progress` is called with the numbers of pairs that are done and that are to be asked about.

    Raises:
        InvalidInput: there are too many memories for one run, or the table does not say whose a memory is.
        SchemaUnsupported: the table lacks a column by which memories are compared.
        DatabaseUnreachable: the connection was lost while the model was asked.
        EmbedderUnauthorized, EmbedderRejected, EmbedderUnavailable, EmbedderBroken: the model does not judge.
    """
    pairs, frequencies, links = await _read(connection, table, user=user, since=since)
    return await judge_by_model(
        model,
        pairs,
        score_all(pairs, frequencies),
        frequencies,
        threshold=THRESHOLD,
        lookup=_lookup(connection, table, links=links),
        most=most,
        progress=progress,
    )


async def too_long(connection: AnyConnection, table: MemoryTable, *, user: str | None) -> int:
    """Return how many memories, of a user or of all, are left out because they have more than `MAX_CHARACTERS`.

    Raises:
        InvalidInput: the table does not say whose a memory is, or has no such user.
        SchemaUnsupported: the table lacks a column by which memories are compared.
    """
    require_curatable(table)
    return await count_too_long(connection, table, user=user, links=await has_links(connection, table))


async def _read(
    connection: AnyConnection, table: MemoryTable, *, user: str | None, since: datetime | None
) -> tuple[list[Pair], Frequencies, bool]:
    """Return the pairs, how rare their words and tags are, and whether the memory API's table of links is there."""
    require_curatable(table)
    links = await has_links(connection, table)
    pairs = await read_pairs(connection, table, user=user, since=since, links=links)
    return pairs, await read_frequencies(connection, table, user=user, links=links), links


def _lookup(connection: AnyConnection, table: MemoryTable, *, links: bool) -> Lookup:
    """Return a function that looks pairs up through the connection; concurrent calls take turns on it."""
    free = asyncio.Lock()

    async def unchanged(pairs: Sequence[Pair]) -> AbstractSet[Ids]:
        async with free:
            return await read_unchanged(connection, table, pairs, links=links)

    return unchanged
