"""Reads the neighbourhood of a concept: the memories that have it, and the other concepts that several of them have.

The graph holds numbers only, so the names come from the texts of memories that the reader may read anyway.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections import Counter
from dataclasses import dataclass

from memory_recall.errors import SchemaBehind
from memory_recall.graph.concepts import concepts_of, normal_form
from memory_recall.graph.definition import owner
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.columns.moments import moment
from memory_recall.schema.columns.owners import owned_by, owner_named
from memory_recall.schema.graph_relations import CONCEPT, CONCEPTS, concept_texts
from memory_recall.schema.requirements.reading import require_every_row
from memory_recall.schema.table import MemoryTable

_MOST = 100  # memories that are read, as recalls follow no concept that more memories have
_NEWEST = 10  # memories that are shown
_SHARED = 20  # concepts that are shown


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """A memory that has the concept; `concepts` are those of the shown shared ones that it has, most shared first."""

    id: MemoryId
    content: str
    concepts: list[str]


@dataclass(frozen=True, slots=True)
class SharedConcept:
    """Another concept, and how many of the memories that were read have it, at least two."""

    concept: str
    memories: int


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A concept in its normal form, with what lies around it.

    `memories` counts the memories that have it, at most 100; `more` says that there are more. `newest` are those with
    the highest ids or, where ids are no integers, with the latest times. `sharing` counts the other concepts that at
    least two of the memories have, and `shared` are those that most of them have, most shared first.
    """

    concept: str
    memories: int
    more: bool
    newest: list[ShownMemory]
    sharing: int
    shared: list[SharedConcept]


async def read_neighbourhood(
    connection: AnyConnection, table: MemoryTable, name: str, *, user: str | None
) -> Neighbourhood:
    """Read the neighbourhood of the concept `name` among one user's memories, or among everybody's if `user` is None.

    Raises:
        SchemaBehind: the graph is not enabled.
        InvalidInput: a user is named and the table does not say whose a memory is.
    """
    user = await _require_graph(connection, table, user)
    concept = normal_form(name)
    with translated("looking at the concept graph"):
        rows = await connection.fetch(_having(table), concept, user)
    concepts = [concepts_of(row["content"], row["tags"], row["expanded_keywords"]) - {concept} for row in rows[:_MOST]]
    counts = Counter(one for found in concepts for one in found)
    sharing = sorted((one for one, count in counts.items() if count > 1), key=lambda one: (-counts[one], one))
    shown = sharing[:_SHARED]
    return Neighbourhood(
        concept=concept,
        memories=len(concepts),
        more=len(rows) > _MOST,
        newest=[
            ShownMemory(row["id"], row["content"], [one for one in shown if one in found])
            for row, found in zip(rows[:_NEWEST], concepts, strict=False)  # there are more concepts than are shown
        ],
        sharing=len(sharing),
        shared=[SharedConcept(one, counts[one]) for one in shown],
    )


async def _require_graph(connection: AnyConnection, table: MemoryTable, user: str | None) -> str | None:
    """Refuse to read where there is no graph, or nothing of one user's; return the user as the database writes it.

    Raises:
        SchemaBehind: the graph is not enabled.
        SchemaUnsupported: row-level security hides rows from the role.
        InvalidInput: a user is named and the table does not say whose a memory is, or has no such users.
    """
    await require_every_row(connection, table)
    owner = None if user is None else owner_named(table, user)
    with translated("looking at the concept graph"):
        if await connection.fetchval("SELECT to_regclass($1)", table.own(CONCEPTS)) is None:
            raise SchemaBehind(f"Table {table.schema}.{table.name} has no concept graph.", "Run memory graph enable.")
    return owner


def _readable(table: MemoryTable) -> str:
    """Return the condition for a row `m` of the user $2, or of any user if it is NULL."""
    return f"($2::text IS NULL OR {owned_by(table, 'm', '$2')})" if "user_id" in table.columns else "$2::text IS NULL"


def _having(table: MemoryTable) -> str:
    """Return the SELECT of the memories of user $2, or of all users if it is NULL, that have the concept named $1."""
    row = table.row("m")
    owners = f"SELECT DISTINCT {owner(table, 'm')} AS owner FROM {table.qualified} m WHERE $2::text IS NULL"
    return f"""
        WITH owners AS (SELECT $2::text AS owner WHERE $2::text IS NOT NULL UNION ALL {owners}),
             numbers AS MATERIALIZED (SELECT {table.own(CONCEPT)}(owner, $1::text) AS concept FROM owners)
        SELECT {table.key.shown(row.id)} AS id, {concept_texts(table)}
          FROM numbers n JOIN {table.own(CONCEPTS)} c ON c.concept = n.concept
          JOIN {table.qualified} m ON {row.id} = c.memory_id AND {table.shareable("m")}
           AND {_readable(table)}
         ORDER BY {_newest_first(table)} LIMIT {_MOST + 1}"""


def _newest_first(table: MemoryTable) -> str:
    """Return the SQL by which rows `m` are ordered: by ids, or by times where ids are no integers, which count up."""
    by_id = f"{table.row('m').id} DESC"
    timed = not table.key.is_integer and "created_at" in table.columns
    return f"{moment(table, 'created_at')} DESC NULLS LAST, {by_id}" if timed else by_id
