"""Reads what the operator and `memory status` report about a database: counts and catalog entries, never text."""

from dataclasses import dataclass

from memory_recall.errors import DatabaseRejected
from memory_recall.graph import GraphState, graph_state
from memory_recall.hnsw.definition import IndexFacts, inspect_index
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.identity_sql import DatabaseIdentity, read_identity
from memory_recall.schema.claims_sql import TableClaim, read_claim
from memory_recall.schema.columns.names import ColumnNames
from memory_recall.schema.columns.used import Need
from memory_recall.schema.models_sql import RecordedModel, Roles, read_roles
from memory_recall.schema.requirements.faults import Fault
from memory_recall.schema.requirements.reading import table_faults
from memory_recall.schema.requirements.taken_names import read_taken_names, taken_faults
from memory_recall.schema.requirements.used_columns import column_faults, names_faults, shape_faults
from memory_recall.schema.revisions import HEAD_REVISION, current_revision
from memory_recall.schema.rules.differences import describe_differences, has_own_tables
from memory_recall.schema.status_sql import count_rows, estimate_rows, read_server, seconds_since_wanted
from memory_recall.schema.table import MemoryTable, describe
from memory_recall.swap import state_sql
from memory_recall.swap.state_sql import SwapRecord


@dataclass(frozen=True)
class RowCounts:
    """Counts of the rows that are not deleted, by state. `total` is the sum of the next five counts.

    `blank` counts the rows that have been given up because their text is NULL or blank: there is nothing to embed, and
    nothing to do about it, so they are not among the quarantined ones.
    `without_words` counts the rows that no search by words finds yet, since a search column of ours is still filled.
    Rows that are quarantined because the table refuses their update are not among them.
    `truncated` counts the embedded rows whose text is longer than the model's window, so that its end has no part in
    the vector.

    `estimated` says that the table takes too long to count, so that `total` and `embedded` are estimates. `uncounted`
    says that the other counts take too long, too. Then all rows count as pending, since nobody knows better, and the
    other counts are 0.
    """

    total: int = 0
    embedded: int = 0
    pending: int = 0
    sensitive: int = 0
    quarantined: int = 0
    blank: int = 0
    without_words: int = 0
    truncated: int = 0
    estimated: bool = False
    uncounted: bool = False


@dataclass(frozen=True)
class DatabaseFacts:
    """The state of a database, from which the operator decides what to do next.

    `schema_differences` describes how the table differs from what the last revision requires; it is empty if nothing
    differs or if the table is at another revision. `identity` is None where the role may not read the server's system
    identifier. `server_address` is the server's address as the server sees it, None through a Unix socket.
    `seconds_since_wanted` is the time since a recall last needed an embedder that did not answer, by the
    database's clock and exact to 30 seconds; it is None where no such time is recorded. `graph` is the state of the
    concept graph, None before the first migration; its counts of a large graph are estimates. `faults` are what is
    wrong with the table that no migration can change; row-level security that hides rows makes the counts wrong, too.
    `words_keep_case` says that the table's words outside of ASCII are told apart by case: its search column is not one
    of ours, and the database's locale knows no small letters of them.
    """

    server_version: str
    in_recovery: bool
    database_owner: str
    extension_version: str | None
    extension_available: str | None
    extension_schema: str | None
    schema_revision: str | None
    table_exists: bool
    embedding_dimensions: int | None
    rows: RowCounts
    index: IndexFacts
    active_model: RecordedModel | None
    next_model: RecordedModel | None
    swap: SwapRecord | None = None
    schema_differences: str = ""
    identity: DatabaseIdentity | None = None
    server_address: str | None = None
    table_schema: str = ""
    claim: TableClaim | None = None
    seconds_since_wanted: float | None = None
    graph: GraphState | None = None
    faults: tuple[Fault, ...] = ()
    words_keep_case: bool = False

    @property
    def schema_current(self) -> bool:
        """Whether the table is at the last revision, and differs in nothing from what that revision requires."""
        return self.schema_revision == HEAD_REVISION and not self.schema_differences and not self.faults

    @property
    def schema_ahead(self) -> bool:
        """Whether a later release has migrated the table."""
        return (self.schema_revision or "") > HEAD_REVISION

    @property
    def system_identifier(self) -> str | None:
        """The server's system identifier; None where the role may not read it."""
        return self.identity.system_identifier if self.identity else None

    @property
    def cluster_name(self) -> str | None:
        """The server's setting `cluster_name`; None where the role may not read the server's identity."""
        return self.identity.cluster_name if self.identity else None

    @property
    def active_name(self) -> str | None:
        """The active model's name; None where no model is active."""
        return self.active_model.name if self.active_model else None


NO_ROWS = RowCounts()
NO_INDEX = IndexFacts(None, exists=False, valid=False, progress=None)


async def inspect(
    connection: AnyConnection, table: str, names: ColumnNames | None = None, *, count_seconds: float = 600.0
) -> DatabaseFacts:
    """Read the facts about the database and its table of memories. The table need not exist.

    `names` are the names of its columns before its first migration has recorded them; other names than the recorded
    ones are a fault. None takes what is recorded, or else our names. Rows that cannot be counted within `count_seconds`
    are estimated.

    Raises:
        DatabaseUnreachable: the connection was lost.
    """
    server = await read_server(connection)
    folds_case = server.pop("folds_case")
    memories = await describe(connection, table, names)
    revision = await current_revision(connection, memories)
    has_state = revision is not None and await has_own_tables(connection, memories)
    roles = await read_roles(connection, memories) if has_state else Roles(None, None)
    return DatabaseFacts(
        **server,
        extension_schema=memories.vector_schema,
        schema_revision=revision,
        table_exists=memories.exists,
        embedding_dimensions=memories.embedding_dimensions,
        rows=await _count(connection, memories, with_queue=has_state, seconds=count_seconds),
        index=await inspect_index(connection, memories) if memories.exists else NO_INDEX,
        active_model=roles.active,
        next_model=roles.next,
        swap=await state_sql.latest(connection, memories) if has_state else None,
        schema_differences=await _differences(connection, memories) if revision == HEAD_REVISION else "",
        identity=await _identity(connection),
        table_schema=memories.schema,
        claim=await read_claim(connection, memories) if has_state else None,
        seconds_since_wanted=await seconds_since_wanted(connection, memories) if has_state else None,
        graph=await graph_state(connection, memories) if has_state else None,
        faults=(
            *names_faults(memories, names),
            *await table_faults(connection, memories),
            *taken_faults(memories, await read_taken_names(connection, memories)),
        ),
        words_keep_case=not folds_case and memories.has_words_of_others,
    )


async def _identity(connection: AnyConnection) -> DatabaseIdentity | None:
    try:
        return await read_identity(connection)
    except DatabaseRejected:
        return None


async def _differences(connection: AnyConnection, table: MemoryTable) -> str:
    if shape_faults(table) or column_faults(table, Need.ALWAYS):
        return ""  # rules are compared by their text, which depends on the columns
    if not await has_own_tables(connection, table):
        return "what the migrations made is gone"
    return await describe_differences(connection, table)


async def _count(connection: AnyConnection, table: MemoryTable, *, with_queue: bool, seconds: float) -> RowCounts:
    if not table.exists or column_faults(table, Need.ALWAYS):
        return NO_ROWS
    counts = await count_rows(connection, table, with_queue=with_queue, seconds=seconds)
    if counts is not None:
        return RowCounts(**counts)
    rows = await estimate_rows(connection, table)
    return RowCounts(total=rows, pending=rows, estimated=True, uncounted=True)
