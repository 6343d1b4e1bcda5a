"""Looks at a table that is to be adopted, and plans how; nothing is changed."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memory_recall.embedding.profiles import ModelProfile
from memory_recall.errors import SchemaUnsupported
from memory_recall.postgres.connection import AnyConnection
from memory_recall.schema.adoption.estimates import (
    CHARACTERS_A_TOKEN,
    Costs,
    Updates,
    estimate_costs,
    judge_updates,
)
from memory_recall.schema.adoption.existing_columns import embedding_name, with_vector_ways
from memory_recall.schema.adoption.observations import DatabaseObservation, TableObservation, TextObservation
from memory_recall.schema.adoption.observations_sql import (
    looking,
    observe_database,
    observe_table,
    observe_texts,
    read_namesakes,
)
from memory_recall.schema.adoption.proposal import Given, Proposal, propose, recorded
from memory_recall.schema.columns.names import EMBEDDING, ColumnNames
from memory_recall.schema.requirements.faults import Fault, messages, remedies, require_none
from memory_recall.schema.requirements.reading import table_faults
from memory_recall.schema.requirements.server_version import server_faults
from memory_recall.schema.requirements.taken_names import read_taken_names, taken_faults
from memory_recall.schema.requirements.used_columns import names_faults
from memory_recall.schema.revisions import current_revision
from memory_recall.schema.table import MemoryTable, describe


@dataclass(frozen=True)
class AdoptionRequest:
    """What is to be adopted: the table, and what a person has said of it.

    `given` has sources of columns by our names, and `all_public` says that no row is sensitive. `m` is that of the
    vector index. `text_search_configuration` and `fillfactor`, in percent, were chosen; None chooses none.
    """

    table: str
    given: Given
    all_public: bool
    model: ModelProfile
    m: int
    text_search_configuration: str | None = None
    fillfactor: int | None = None


@dataclass(frozen=True)
class AdoptionPlan:
    """What was found and what follows from it. `revision` is None before the first migration.

    `table` is described with the first candidate for what is undecided, and `faults` are those of `memory migrate`.
    `names` are what `memory migrate` takes, as far as it is decided. `namesakes` are tables of the same name in other
    schemas, with these, if the request names no schema.
    """

    request: AdoptionRequest
    table: MemoryTable
    revision: str | None
    database: DatabaseObservation
    seen: TableObservation
    texts: TextObservation
    proposal: Proposal
    names: ColumnNames
    faults: tuple[Fault, ...]
    costs: Costs
    updates: Updates
    namesakes: tuple[str, ...] = ()

    @property
    def adoptable(self) -> bool:
        """Whether `memory migrate` may run: nothing is undecided or at fault, and pgvector exists."""
        return not self.faults and not self.proposal.questions and self.database.extension is not None

    @property
    def fillfactor(self) -> int | None:
        """The fillfactor that was chosen, or else the proposed one; None where there is neither."""
        return self.request.fillfactor or self.updates.proposed

    def require_decided(self) -> None:
        """Refuse to adopt a table while a person has to decide or to mend something.

        Raises:
            SchemaUnsupported: there is a question or a fault; the message names all of them.
        """
        questions = self.proposal.questions
        if questions or self.faults:
            raise SchemaUnsupported(
                " ".join([*(one.message for one in questions), messages(self.faults)]).strip(),
                " ".join([*(one.remedy for one in questions), remedies(self.faults)]).strip(),
            )


async def plan_adoption(connection: AnyConnection, request: AdoptionRequest) -> AdoptionPlan:
    """Look at a table, and plan its adoption.

    Raises:
        SchemaUnsupported: there is no such table, or the server is too old.
        InvalidConfiguration: a name that was given cannot be used.
        DatabaseRejected: the role may not read the table.
    """
    require_none(server_faults(connection.get_server_version().major))
    async with looking(connection):
        table = await describe(connection, request.table)
        namesakes = await read_namesakes(connection, table)
        if not table.exists:
            raise SchemaUnsupported(f"There is no table {table.schema}.{table.name}.", _where_else(namesakes))
        database = await observe_database(connection)
        seen = await observe_table(connection, table)
        revision = await current_revision(connection, table)
        wanted, chosen = None, request.text_search_configuration
        if revision is None:
            embedding = embedding_name(table, request.model)
            proposal = propose(table, seen, request.given, all_public=request.all_public, embedding=embedding)
            names = replace(proposal.names(), text_search_configuration=chosen)
            provisional = replace(proposal.names(with_candidates=True), text_search_configuration=chosen)
            table = await describe(connection, request.table, provisional)
        else:
            proposal, names = recorded(table), table.names
            wanted = _recorded_but_for(table.names, request)
        faults = [*names_faults(table, wanted), *await table_faults(connection, table)]
        faults += taken_faults(table, await read_taken_names(connection, table))
        if revision is None:
            faults = with_vector_ways(faults, table, request.model)
        texts = await _texts(connection, table, seen, database.encoding, request.model)
    return AdoptionPlan(
        request=request,
        table=table,
        revision=revision,
        database=database,
        seen=seen,
        texts=texts,
        proposal=proposal,
        names=names,
        faults=tuple(faults),
        costs=estimate_costs(seen, texts, request.model.dimensions, request.m),
        updates=judge_updates(seen),
        namesakes=() if "." in request.table else tuple(one for one in namesakes if one.endswith(f".{table.name}")),
    )


def _where_else(namesakes: Sequence[str]) -> str:
    """Return what to do about a table that does not exist, where these have its name."""
    if not namesakes:
        return "Name a table of this database, with its schema if the search_path does not have it."
    return f"Name the one that is meant: {'; '.join(f'memory adopt {shlex.quote(one)}' for one in namesakes)}."


def _recorded_but_for(names: ColumnNames, request: AdoptionRequest) -> ColumnNames:
    """Return the recorded names of a table's columns, but for those that the request gives.

    What a request does not give was proposed before the first migration, so that a repetition does not give it either.

    Raises:
        InvalidConfiguration: a name that was given cannot be used.
    """
    chosen = request.text_search_configuration
    given = ColumnNames.parse(request.given, all_public=request.all_public, text_search_configuration=chosen)
    kept = {name: sources for name, sources in names.sources.items() if name not in request.given}
    embedding = given.embedding if EMBEDDING in request.given else names.embedding
    return ColumnNames({**kept, **given.sources}, chosen, embedding)


async def _texts(
    connection: AnyConnection, table: MemoryTable, seen: TableObservation, encoding: str, model: ModelProfile
) -> TextObservation:
    """Measure the texts, if it is known which column has them and it can be read as text."""
    window = None if model.max_tokens is None else model.max_tokens * CHARACTERS_A_TOKEN
    if table.kind not in {"r", "p"} or table.columns.get("content") not in {"text", "character varying"}:
        return TextObservation(window=window)
    return await observe_texts(connection, table, seen, encoding, window)
