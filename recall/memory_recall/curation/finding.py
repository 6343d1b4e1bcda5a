"""Finds restatements in a table of memories and proposes what to do with them; nothing in the database is changed."""

from datetime import datetime

from memory_recall.curation.candidates_sql import has_links, read_frequencies, read_pairs, require_curatable
from memory_recall.curation.decisions import judge
from memory_recall.curation.proposal_file import Proposal, proposal_from
from memory_recall.postgres.connection import AnyConnection
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
    require_curatable(table)
    links = await has_links(connection, table)
    pairs = await read_pairs(connection, table, user=user, since=since, links=links)
    frequencies = await read_frequencies(connection, table, user=user, links=links)
    return [proposal_from(one) for one in judge(pairs, frequencies)]
