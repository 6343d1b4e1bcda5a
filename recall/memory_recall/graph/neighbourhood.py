"""Reads the neighbourhood of a concept: the memories that have it, and the other concepts that several of them have.

The graph holds numbers only, so the names come from the texts of memories that the reader may read anyway.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections import Counter
from dataclasses import dataclass

from memory_recall.errors import InvalidInput, SchemaBehind
from memory_recall.graph.concepts import concepts_of, normal_form
from memory_recall.graph.definition import owner
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.graph_relations import CONCEPT, CONCEPTS, concept_texts
from memory_recall.schema.table import MemoryTable

_MOST = 100  # memories that are read, as recalls follow no concept that more memories have
_SHOWN = 10
_SHARED = 20


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """A memory that has the concept."""

    id: int
    content: str


@dataclass(frozen=True, slots=True)
class SharedConcept:
    """Another concept, and how many of the memories that were read have it, at least two."""

    concept: str
    memories: int


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A concept in its normal form, with what lies around it.

    `memories` counts the memories that have it, at most 100; `more` says that there are more. `newest` are the ten with
    the highest ids. `shared` are the twenty concepts that most of the memories share, most shared first.
    """

    concept: str
    memories: int
    more: bool
    newest: list[ShownMemory]
    shared: list[SharedConcept]


async def read_neighbourhood(
    connection: AnyConnection, table: MemoryTable, name: str, *, user: str | None
) -> Neighbourhood:
    """Read the neighbourhood of the concept `name` among one user's memories, or among everybody's if `user` is None.

    Raises:
        SchemaBehind: the graph is not enabled.
        InvalidInput: a user is named and the table does not say whose a memory is.
    """
    if user is not None and "user_id" not in table.columns:
        raise InvalidInput(f"The table {table.name} has no column user_id.", "Say --everyone.")
    concept = normal_form(name)
    with translated("looking at the concept graph"):
        if await connection.fetchval("SELECT to_regclass($1)", table.own(CONCEPTS)) is None:
            raise SchemaBehind(f"Table {table.schema}.{table.name} has no concept graph.", "Run memory graph enable.")
        rows = await connection.fetch(_statement(table), concept, user)
    found = rows[:_MOST]
    shared = Counter(
        one
        for row in found
        for one in concepts_of(row["content"], row["tags"], row["expanded_keywords"])
        if one != concept
    )
    most = sorted(shared.items(), key=lambda item: (-item[1], item[0]))[:_SHARED]
    return Neighbourhood(
        concept=concept,
        memories=len(found),
        more=len(rows) > _MOST,
        newest=[ShownMemory(row["id"], row["content"]) for row in found[:_SHOWN]],
        shared=[SharedConcept(one, count) for one, count in most if count > 1],
    )


def _statement(table: MemoryTable) -> str:
    """Return the SELECT of the memories of user $2, or of all users if it is NULL, that have the concept named $1."""
    owners = f"SELECT DISTINCT {owner(table, 'm')} AS owner FROM {table.qualified} m WHERE $2::text IS NULL"
    return f"""
        WITH owners AS (SELECT $2::text AS owner WHERE $2::text IS NOT NULL UNION ALL {owners}),
             numbers AS MATERIALIZED (SELECT {table.own(CONCEPT)}(owner, $1::text) AS concept FROM owners)
        SELECT m.id, {concept_texts(table)}
          FROM numbers n JOIN {table.own(CONCEPTS)} c ON c.concept = n.concept
          JOIN {table.qualified} m ON m.id = c.memory_id AND {table.shareable("m")}
         ORDER BY m.id DESC LIMIT {_MOST + 1}"""
