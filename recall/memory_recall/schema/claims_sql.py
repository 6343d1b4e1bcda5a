"""The MemoryIndex that a table belongs to, recorded in the database itself as the comment of the table's state.

Two objects over one table would undo each other's work: one table belongs to one object, wherever the two are. A claim
names the server, too, so that in a copy of the database, restored on another server, it binds nobody.
"""

import json
from dataclasses import asdict, dataclass, fields
from typing import Self

from memory_recall.errors import InvalidInput, TableTaken
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable

_READ = "SELECT obj_description(to_regclass($1), 'pg_class')"
_WRITE = "SELECT format('COMMENT ON TABLE %s IS %L', $1::text, $2::text)"  # %L makes NULL of no text


@dataclass(frozen=True)
class TableClaim:
    """An object of Kubernetes and the server whose table it claims; `created_at` is the object's own timestamp."""

    system_identifier: str
    namespace: str
    name: str
    uid: str
    created_at: str

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse a claim.

        Raises:
            InvalidInput: it is no claim.
        """
        try:
            found = json.loads(text)
            return cls(**{field.name: str(found[field.name]) for field in fields(cls)})
        except (ValueError, KeyError, TypeError):
            raise InvalidInput("The claim is malformed.", "Leave --claim to the operator.") from None

    def to_json(self) -> str:
        """Return the claim as one line."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return f"MemoryIndex {self.namespace}/{self.name}"


async def read_claim(connection: AnyConnection, table: MemoryTable) -> TableClaim | None:
    """Return the claim to a table, or None where there is none."""
    with translated("reading whose table it is"):
        comment = await connection.fetchval(_READ, table.own("memory_index_state"))
    try:
        return TableClaim.from_json(comment or "")
    except InvalidInput:
        return None


async def require_claimable(
    connection: AnyConnection, table: MemoryTable, claim: TableClaim | None, replaces: str | None
) -> None:
    """Refuse a table that belongs to another object than the claim's, and than the one whose uid it replaces.

    Raises:
        TableTaken: it does.
    """
    found = await read_claim(connection, table)
    if claim is None or found is None or found.uid in {claim.uid, replaces}:
        return
    if found.system_identifier == claim.system_identifier:
        raise TableTaken(
            f"Table {table.schema}.{table.name} belongs to {found}; nothing was changed.",
            "Delete one of the two objects, or name another table.",
        )


async def write_claim(
    connection: AnyConnection, table: MemoryTable, claim: TableClaim | None, replaces: str | None
) -> None:
    """Record the claim, or end the one that it would replace; the caller holds the migration lock.

    `require_claimable` must have passed under the same lock.
    """
    found = await read_claim(connection, table)
    if found == claim or (claim is None and found is not None and found.uid != replaces):
        return
    with translated("recording whose table it is"):
        text = claim.to_json() if claim else None
        await connection.execute(await connection.fetchval(_WRITE, table.own("memory_index_state"), text))
