"""Fills the concept graph from the queue of changed memories.

Each batch is one short transaction. It takes steps of the queue that no other worker has taken, reads the texts of
their memories, finds the concepts, and only then locks the memories, for as long as the links are written. What was
changed since it was read, and what somebody is changing now, is left in the queue. So no two workers do the same work,
none waits for another or for an edit, and no link comes from a text that its memory no longer has. A batch is bounded
by characters as well as by steps, so its transaction is short also where texts are long or the worker has little CPU.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory_recall.graph.concepts import concepts_of
from memory_recall.graph.definition import EXTRACTION, differences, owner
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.graph_relations import (
    CHANGES,
    CONCEPT,
    CONCEPTS,
    GRAPH,
    GRAPH_TABLES,
    concept_characters,
    concept_texts,
    text_columns,
)
from memory_recall.schema.rules.expected import TEXT_HASH
from memory_recall.schema.table import MemoryTable

_STEPS = 250  # in one transaction
_CHARACTERS = 500_000  # in one transaction, or the texts of one memory; concepts of so many are found in half a second
_BATCHES = 200  # in one pass
_MOST_CONCEPTS = 2_000  # of one memory


@dataclass(frozen=True, slots=True)
class Read:
    """What a batch has read: the steps of the queue, each with its memory's id, and the memories with their concepts.

    `hashes`, `owners` and `concepts` are by memory. A memory without an entry was sensitive, deleted or gone.
    """

    steps: Mapping[int, MemoryId]
    hashes: Mapping[MemoryId, str]
    owners: Mapping[MemoryId, str]
    concepts: Mapping[MemoryId, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Pass:
    """How many changes a pass has dealt with and how many it has left because somebody was changing the memories.

    `more` says that it ended before it had seen the whole queue.
    """

    handled: int = 0
    left: int = 0
    more: bool = False


async def fill_pass(connection: AnyConnection, table: MemoryTable, stop: asyncio.Event) -> Pass:
    """Deal with the changes in the queue, up to 50,000 of them or until `stop` is set.

    Nothing is done while the graph is not enabled or one of its rules is missing. Once the queue is empty for the first
    time, recalls begin to use the graph.

    Raises:
        DatabaseUnreachable, LockNotAvailable: the connection is lost, or a table is locked for a moment.
    """
    if not await _may_fill(connection, table):
        return Pass()
    handled, taken, after = 0, 0, 0
    for _ in range(_BATCHES):
        if stop.is_set():
            break
        with translated("filling the concept graph"):
            async with connection.transaction(isolation="read_committed"):
                read = await read_batch(connection, table, after)
                handled += await write_batch(connection, table, read)
        if not read.steps:
            await _record_filled(connection, table)
            return Pass(handled, taken - handled)
        taken, after = taken + len(read.steps), max(read.steps)
    return Pass(handled, taken - handled, more=True)


async def _may_fill(connection: AnyConnection, table: MemoryTable) -> bool:
    """Return whether the graph is enabled and all of its rules are in place."""
    with translated("looking at the concept graph"):
        for name in GRAPH_TABLES:
            if await connection.fetchval("SELECT to_regclass($1)", table.own(name)) is None:
                return False
    return await differences(connection, table) == ""


async def read_batch(connection: AnyConnection, table: MemoryTable, after: int) -> Read:
    """Take steps after the step `after`, read the texts of their memories, and find the concepts.

    The steps stay taken until the transaction ends; those that are too many for one batch are not in the result. None
    are taken while the graph awaits `enable`.
    """
    mine = f"SELECT FROM {table.own(GRAPH)} WHERE extraction = {EXTRACTION} FOR KEY SHARE"
    if not await connection.fetch(mine):
        return Read({}, {}, {}, {})
    key, row_id = table.key, table.row("m").id
    taken = await connection.fetch(
        f"SELECT step, {key.shown('memory_id')} AS memory_id FROM {table.own(CHANGES)} WHERE step > $1 "
        f"ORDER BY step LIMIT {_STEPS} FOR UPDATE SKIP LOCKED",
        after,
    )
    readable = f"FROM {table.qualified} m WHERE {row_id} = ANY($1::{key.stored}[]) AND {table.shareable('m')}"
    sizes = await connection.fetch(
        f"SELECT {key.shown(row_id)} AS id, {concept_characters(table)} AS characters {readable}",
        [row["memory_id"] for row in taken],
    )
    steps = _first_steps(
        {row["step"]: row["memory_id"] for row in taken}, {row["id"]: row["characters"] for row in sizes}
    )
    rows = await connection.fetch(
        f"SELECT {key.shown(row_id)} AS id, {_hash(table)} AS hash, {owner(table, 'm')} AS owner, "
        f"{concept_texts(table)} {readable}",
        list(set(steps.values())),
    )
    texts = {row["id"]: (row["content"], row["tags"], row["expanded_keywords"]) for row in rows}
    return Read(
        steps,
        {row["id"]: row["hash"] for row in rows},
        {row["id"]: row["owner"] for row in rows},
        await asyncio.to_thread(_concepts, texts),
    )


def _first_steps(steps: Mapping[int, MemoryId], characters: Mapping[MemoryId, int]) -> dict[int, MemoryId]:
    """Return the first steps whose memories together have at most 500,000 characters, and always the first step."""
    first: dict[int, MemoryId] = {}
    memories: set[MemoryId] = set()
    total = 0
    for step, memory in steps.items():
        if memory not in memories:
            total += characters.get(memory, 0)
            memories.add(memory)
        if first and total > _CHARACTERS:
            break
        first[step] = memory
    return first


async def write_batch(connection: AnyConnection, table: MemoryTable, read: Read) -> int:
    """Replace the links of the memories that were read, and remove their steps from the queue; return how many steps.

    Memories that are locked or have changed since are left out.
    """
    if not read.steps:
        return 0
    ids = sorted(set(read.steps.values()))
    stored, row_id = table.key.stored, table.row("m").id
    named = f"FROM {table.qualified} m WHERE {row_id} = ANY($1::{stored}[])"
    shown = f"{table.key.shown(row_id)} AS id"
    locked = await connection.fetch(
        f"SELECT {shown}, CASE WHEN {table.shareable('m')} THEN {_hash(table)} END AS hash {named} "
        f"ORDER BY {row_id} FOR NO KEY UPDATE SKIP LOCKED",
        ids,
    )
    there = await connection.fetch(f"SELECT {shown} {named}", ids)
    hashes = {row["id"]: row["hash"] for row in locked}
    settled = [one for one, found in hashes.items() if found == read.hashes.get(one)]
    settled += set(ids).difference(row["id"] for row in there)
    concepts, numbered = table.own(CONCEPTS), f"{table.own(CONCEPT)}(l.owner, l.name) AS number"
    # Before the first ANALYZE Postgres expects 250 memories to have most of the links, and would read the whole table.
    await connection.execute("SET LOCAL enable_seqscan = off")
    await connection.execute(f"DELETE FROM {concepts} WHERE memory_id = ANY($1::{stored}[])", settled)
    links = [(one, name) for one in settled if one in hashes for name in read.concepts.get(one, ())]
    await connection.execute(
        f"INSERT INTO {concepts} (memory_id, concept) SELECT l.memory_id, {numbered} "
        f"FROM unnest($1::{stored}[], $2::text[], $3::text[]) AS l(memory_id, owner, name) ORDER BY number "
        "ON CONFLICT DO NOTHING",
        [one for one, _ in links],
        [read.owners[one] for one, _ in links],
        [name for _, name in links],
    )
    done = set(settled)
    steps = [step for step, one in read.steps.items() if one in done]
    await connection.execute(f"DELETE FROM {table.own(CHANGES)} WHERE step = ANY($1::bigint[])", steps)
    return len(steps)


async def _record_filled(connection: AnyConnection, table: MemoryTable) -> None:
    """Record that the graph is filled if the queue is empty and this is not recorded yet."""
    with translated("recording that the concept graph is filled"):
        await connection.execute(
            f"UPDATE {table.own(GRAPH)} SET filled_at = now() WHERE filled_at IS NULL AND extraction = {EXTRACTION} "
            f"AND NOT EXISTS (SELECT FROM {table.own(CHANGES)})"
        )


def _hash(table: MemoryTable) -> str:
    """Return SQL for the keyed hash of the owner and the texts of the row `m`, by which a change of them is noticed."""
    parts = [table.row("m").column(name) for name in text_columns(table)]
    return f"{table.own(TEXT_HASH)}(row({', '.join(parts)}, {owner(table, 'm')})::text)"


def _concepts(texts: Mapping[MemoryId, tuple[str, str, str]]) -> dict[MemoryId, Sequence[str]]:
    return {one: sorted(concepts_of(*found))[:_MOST_CONCEPTS] for one, found in texts.items()}
