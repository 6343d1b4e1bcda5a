"""A table whose columns all have other names: no statement spells one of ours as a column of the user's row."""

import re
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from memory_recall.contrib.curation.candidates_sql import read_frequencies, read_pairs, read_unchanged
from memory_recall.contrib.curation.decisions import Action, Decider
from memory_recall.contrib.curation.features import Memory, Pair
from memory_recall.contrib.curation.journal_sql import apply_proposals, steps
from memory_recall.contrib.curation.proposal_file import Proposal
from memory_recall.contrib.labelling.memories_sql import draw_statement, read_statement
from memory_recall.graph.definition import functions, memory_triggers, tables
from memory_recall.graph.filling import read_batch, write_batch
from memory_recall.graph.neighbourhood import read_neighbourhood
from memory_recall.graph.state import graph_state
from memory_recall.graph.sweeping import sweep_links
from memory_recall.graph.switching import enable
from memory_recall.hnsw.check import measure_index
from memory_recall.hnsw.definition import IndexFacts
from memory_recall.indexing.quarantine_sql import RetryPolicy, forget_settled, listed, record_failures, retry
from memory_recall.indexing.queue_sql import (
    PendingQueue,
    PendingRow,
    WorkerShare,
    first_with_text,
    sample_with_text,
    still_shareable,
)
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.columns.names import ColumnNames
from memory_recall.schema.columns.used import USED_COLUMNS
from memory_recall.schema.graph_relations import ended_rights, worker_rights
from memory_recall.schema.rules.expected import functions as rules_functions
from memory_recall.schema.rules.expected import triggers as rules_triggers
from memory_recall.schema.table import ACTIVE, STANDBY, MemoryTable
from memory_recall.swap.standby_sql import add_standby, drop_standby
from memory_recall.swap.state_sql import complete_standby_column, count_shareable, read_fill
from memory_recall.transfer.rows_sql import count_statement, export_statement, merge, repeated_lines

UUID, NUMBER = "0190f3e0-0000-7000-8000-000000000001", 17
NAMES = [used.name for used in USED_COLUMNS]
ODD = {name: f"Odd {place}" for place, name in enumerate(NAMES)}
VECTORS = ("embedding", "embedding_standby")
TYPES = {used.name: used.types[0] for used in USED_COLUMNS}
QUALIFIED = '"app"."Odd notes"'
EVERYTHING = {
    "content": "text", "hash": "h",
    "text_hash": "h", "tags": "", "expanded_keywords": "", "terms": [], "owner": "", "characters": 4, "step": 1,
    "rows": 0, "last": None, "run": 1, "cosine": 0.5, "name": "term", "vector": b"v", "distances": [0.5],
    "created_at": datetime(2026, 1, 1, tzinfo=UTC), "attempts": 1, "error_class": "EmptyText", "next_attempt": None,
    "wanted": 1, "missing": 0, "quarantined": 0, "blank": 0, "current": True, "seconds_until_due": None,
    "action": "UPDATE", "applied_at": None, "undone_at": None, "pending": 0, "oldest": None, "links": 0,
    "memories": 0, "extraction": 1, "filled_at": None, "indexed": True, "functions": "{}", "triggers": "{}",
    "constraints": "{}", "indexes": "{}", "line": 1, "first": 1, "hidden": "[]", "role": "app",
    "stored": 2, "locked": [], "place": 1,
}  # fmt: skip
EMPTY_LISTS = {"missing": "indexed", "tables": "tables", "indexes": "tables"}  # and what tells their statements
OWN_RELATIONS = re.compile(
    r'"memory_(?:\w+_failures|supersessions|graph|links|truncated_texts)"|\bFROM (?:page|chosen)\b|\bunnest\(ARRAY'
)
OWN_COLUMNS = {"id", "updated_at"}
IDS = ("id", "memory_id", "superseded_by", "older", "newer", "successor")


class Recorder:
    """A connection that keeps the statements, and answers each with one row of what it reads."""

    def __init__(self, identity: MemoryId) -> None:
        self.statements: list[str] = []
        self.identity = identity

    async def fetch(self, statement: str, *_: object) -> list[dict[str, Any]]:
        return [await self.fetchrow(statement)]

    async def fetchrow(self, statement: str, *_: object) -> dict[str, Any]:
        self.statements.append(statement)
        every = EVERYTHING | dict.fromkeys(IDS, self.identity)
        read = {name: value for name, value in every.items() if re.search(rf"\b{name}\b", statement)}
        empty = [name for name, mark in EMPTY_LISTS.items() if f"AS {mark}" in statement]
        return read | dict.fromkeys(empty, "[]")

    async def fetchval(self, statement: str, *_: object) -> object:
        self.statements.append(statement)
        if "to_regclass($1) IS NULL" in statement:
            return False
        if "array_agg(a.attname::text)" in statement:
            return ["id", "user_id", "src_id", "dst_id", "link_type"]
        return "1" if "pg_get_serial_sequence" in statement else 1

    async def execute(self, statement: str, *_: object) -> str:
        self.statements.append(statement)
        return "UPDATE 0"

    def transaction(self, **_: object) -> "Transaction":
        return Transaction()

    def is_closed(self) -> bool:
        return False


class Transaction(AbstractAsyncContextManager[None]):
    """A transaction of the recorder, in which nothing happens."""

    async def __aexit__(self, *_: object) -> None:
        pass

    async def start(self) -> None:
        pass

    async def rollback(self) -> None:
        pass


def odd_table(**types: str) -> MemoryTable:
    names = ColumnNames.parse({**ODD, "embedding": "memory_embedding"})
    catalog = {ODD[name]: kind for name, kind in (TYPES | types).items()}
    catalog |= {"memory_embedding": "halfvec", "memory_embedding_standby": "halfvec"}
    table = MemoryTable("app", "Odd notes", catalog, "public", 8, 8, names=names, quoted_names=quoted_names())
    assert set(table.columns) == set(NAMES)
    return table


def quoted_names() -> dict[str, str]:
    return {name: f'"{name}"' for name in ODD.values()}


async def of_the_queues(table: MemoryTable, connection: Any) -> None:
    identity = connection.identity
    row = PendingRow(identity, "text", "h")
    for column in (ACTIVE, STANDBY):
        for indexed in (True, False):
            queue = PendingQueue(table, 1, column, indexed=indexed)
            for after in (None, identity):
                await queue.page(connection, after, WorkerShare(), 10)
            await queue.count(connection, WorkerShare())
            await queue.state(connection, WorkerShare())
            await queue.write(connection, [row, row], np.zeros((2, 8), np.float32))
        await record_failures(connection, table, [(row, "EmptyText")], RetryPolicy(), column)
        await forget_settled(connection, table, column)
    await still_shareable(connection, [row], table=table)
    await first_with_text(connection, table, 1)
    await listed(connection, table)
    await retry(connection, table, [identity])


async def of_a_swap(table: MemoryTable, connection: Any) -> None:
    connection.statements += [*add_standby(table, 8), *drop_standby(table)]
    await read_fill(connection, table)
    await complete_standby_column(connection, table, lock_seconds=1)
    await count_shareable(connection, table)
    await sample_with_text(connection, table, 1)


async def of_the_vector_index(table: MemoryTable, connection: Any) -> None:
    facts = IndexFacts("index", exists=True, valid=True, progress=None, m=16, ef_construction=64)
    await measure_index(connection, table, facts, sample=1)


async def of_the_graph(table: MemoryTable, connection: Any) -> None:
    connection.statements += [*tables(table), *worker_rights(table, "role"), *ended_rights(table, "role")]
    connection.statements += [one.body for one in functions(table)]
    connection.statements += [trigger.each for trigger in memory_triggers(table)]
    await write_batch(connection, table, await read_batch(connection, table, 0))
    for after in (None, connection.identity):
        await sweep_links(connection, table, after)
    await read_neighbourhood(connection, table, "term", user="ana")
    await graph_state(connection, table)
    await enable(connection, table)


async def of_curation(table: MemoryTable, connection: Any) -> None:
    memory = Memory(connection.identity, "text", frozenset(), frozenset(), datetime(2026, 1, 1, tzinfo=UTC), "h")
    for links in (True, False):
        await read_pairs(connection, table, user="ana", since=None, links=links)
        await read_frequencies(connection, table, user=None, links=links)
        await read_unchanged(connection, table, [Pair(memory, memory, 0.5)], links=links)
    proposal = Proposal(
        action=Action.UPDATE, decided_by=Decider.RULES, id=memory.id, superseded_by=memory.id, score=0.5, older="",
        newer="", text_hash="0" * 32, successor_hash="0" * 32,
    )  # fmt: skip
    await apply_proposals(connection, table, [proposal])
    await steps(connection, table)


async def of_labelling(table: MemoryTable, connection: Any) -> None:
    connection.statements += [
        make(table, of_user=own) for make in (draw_statement, read_statement) for own in (True, False)
    ]


async def of_transfer(table: MemoryTable, connection: Any) -> None:
    connection.statements += [export_statement(table), count_statement(table)]
    await repeated_lines(connection)
    await merge(connection, table)


def spelled(statement: str) -> Iterator[str]:
    """Yield our names in a statement where they name columns of the user's row.

    What follows AS, and what belongs to an alias of something else, is a name of our own. A bare name may be one of our
    own columns only where the statement reads a relation of ours beside the user's table.
    """
    aliases = {"OLD", "NEW", "old", "new", *re.findall(rf"{QUALIFIED} ([a-z])\b", statement)}
    rest = re.sub(r"'(?:[^']|'')*'", "''", statement)
    rest = re.sub(r"\bAS [a-z_]+( ?\([a-z_, ]+\))?", "", rest)
    rest = re.sub(r'INSERT INTO "app"\."memory_links" \([a-z_, ]+\)', "", rest)
    for alias, name in re.findall(r'(?:"[^"]*"|\b([A-Za-z]+))\.([a-z_]+)\b', rest):
        if alias in aliases and name in {*NAMES, *VECTORS}:
            yield f"{alias}.{name}"
    bare = set(re.findall(r'(?<![."\w])[a-z_]+\b(?!")', re.sub(r'"[^"]*"', '""', rest))) & {*NAMES, *VECTORS}
    if QUALIFIED in statement:
        yield from bare - (OWN_COLUMNS if OWN_RELATIONS.search(statement) else set())


async def test_whatever_notices_a_changed_text_notices_it_under_every_collation() -> None:
    """A nondeterministic one takes texts for equal that differ in case or accents, and the vector would be stale."""
    names = ColumnNames.parse({name: other for name, other in ODD.items() if name != "search_vector"}).for_table(())
    table = replace(odd_table(), names=names, nondeterministic=[ODD["content"]])
    rules = [*rules_functions(table, 1, {}), *rules_triggers(table), *memory_triggers(table)]
    connection = Recorder(NUMBER)
    await merge(connection, table)
    made = [*("".join(one.create(table)) for one in rules), *connection.statements]
    content = rf'\w+\."{ODD["content"]}"'
    exact = [one for one in made if re.search(rf'\({content} COLLATE "C"\) IS DISTINCT FROM', one)]
    assert len(exact) == 7, "two guards, the triggers of vectors, words and links, and two statements of an import"
    assert [one for one in made if re.search(f"{content} IS DISTINCT FROM", one)] == []


@pytest.mark.parametrize(
    ("identity", "types"),
    [(UUID, {"id": "uuid"}), (NUMBER, {"id": "bigint", "is_sensitive": "integer"}), ("key", {"id": "text"})],
)
@pytest.mark.parametrize(
    "statements",
    [of_the_queues, of_a_swap, of_the_vector_index, of_the_graph, of_curation, of_labelling, of_transfer],
)
async def test_no_statement_spells_one_of_our_names_as_a_column_of_the_users(
    statements: Any, identity: MemoryId, types: dict[str, str]
) -> None:
    connection = Recorder(identity)
    await statements(odd_table(**types), connection)
    assert any(QUALIFIED in one or "Odd" in one for one in connection.statements)
    for one in connection.statements:
        assert list(spelled(one)) == [], one
