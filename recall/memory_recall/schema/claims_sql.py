"""The MemoryIndex that a table belongs to, recorded in the database as a comment on the state table.

Two MemoryIndex objects over one table would undo each other's work. Therefore a table belongs to one object, even if
the objects are in different Kubernetes clusters. A claim names the Kubernetes cluster of its object, since only its own
API server can tell whether the object still exists. It also names the database server and its cluster, so that it has
no effect in a copy of the database, be it a dump that was restored on another server or a physical copy of the whole
server.

Whoever may write the comment is the owner of the state table, or a superuser. Such a person can end a claim whose
object no operator sees, by a statement that names the uid of that object.
"""

import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Self

from memory_recall.errors import InvalidInput, TableTaken
from memory_recall.postgres.catalog_sql import reading_catalog
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable

_READ = "SELECT obj_description(to_regclass($1), 'pg_class')"
_WRITE = "SELECT pg_catalog.format('COMMENT ON TABLE %s IS %L', $1::text, $2::text)"  # %L makes NULL of no text
_LONGEST_PART = 253  # of a Kubernetes name; anybody who may change the database can write a claim
_KUBERNETES_NAME = re.compile("[A-Za-z0-9.-]*")
# A superuser may run it, so nothing that another role has made may be found under the name of what it calls.
_END = """\
DO $$DECLARE claimed pg_catalog.regclass; BEGIN PERFORM pg_catalog.set_config('search_path', '', true); \
SELECT oid INTO STRICT claimed FROM pg_class WHERE obj_description(oid, 'pg_class') LIKE '%"uid": "{uid}"%'; \
EXECUTE format('COMMENT ON TABLE %s IS NULL', claimed); END$$"""


@dataclass(frozen=True)
class TableClaim:
    """A claim: the MemoryIndex object and the server of its table.

    Attributes:
        created_at: the object's creation timestamp.
        kubernetes: the uid of the namespace kube-system, which identifies the object's Kubernetes cluster.
        cluster_name: the server's setting of this name.
        cluster_namespace: the namespace of the server's CloudNativePG Cluster; empty if it is not known for certain.
    """

    system_identifier: str
    namespace: str
    name: str
    uid: str
    created_at: str
    kubernetes: str = ""
    cluster_name: str = ""
    cluster_namespace: str = ""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse a claim, whose object has a namespace, a name and a uid as Kubernetes gives them.

        Raises:
            InvalidInput: the text is not a claim.
        """
        try:
            found = json.loads(text)
            parts = {field.name: str(found[field.name]) for field in fields(cls)}
        except (ValueError, KeyError, TypeError, RecursionError):
            parts = {}
        if not parts or max(map(len, parts.values())) > _LONGEST_PART:
            raise InvalidInput("The claim is malformed.", "Leave --claim to the operator.")
        if not all(_KUBERNETES_NAME.fullmatch(parts[name]) for name in ("namespace", "name", "uid")):
            raise InvalidInput("The claim names no Kubernetes object.", "Leave --claim to the operator.")
        return cls(**parts)

    def on_same_server(self, other: Self) -> bool:
        """Return whether both claims name the same server; a physical copy of a server is another one."""
        if (self.system_identifier, self.cluster_name) != (other.system_identifier, other.cluster_name):
            return False
        namespaces = {self.cluster_namespace, other.cluster_namespace} - {""}
        return len(namespaces) <= 1

    def to_json(self) -> str:
        """Return the claim as JSON in one line."""
        return json.dumps(asdict(self))

    def ending(self) -> str:
        """Return the statement by which the owner of the database ends the claim, and no claim of another object.

        It fails if no table, or more than one, is claimed by that object. It leaves no trace that could end a later
        claim.
        """
        return _END.format(uid=self.uid)

    def __str__(self) -> str:
        return f"MemoryIndex {self.namespace}/{self.name}"


async def read_claim(connection: AnyConnection, table: MemoryTable) -> TableClaim | None:
    """Return the claim to a table, or None if there is no claim."""
    async with reading_catalog(connection, "reading whose table it is"):
        comment = await connection.fetchval(_READ, table.own("memory_index_state"))
    try:
        return TableClaim.from_json(comment or "")
    except InvalidInput:
        return None


async def require_claimable(
    connection: AnyConnection, table: MemoryTable, claim: TableClaim | None, replaces: str | None
) -> None:
    """Refuse a table that another MemoryIndex has claimed on this server.

    `claim` is the caller's own claim; if it is None, nothing is checked. `replaces` is the uid of a MemoryIndex whose
    claim the caller replaces.

    Raises:
        TableTaken: another MemoryIndex has claimed the table.
    """
    found = await read_claim(connection, table)
    if claim is None or found is None or found.uid in {claim.uid, replaces}:
        return
    if found.on_same_server(claim):
        raise TableTaken(
            f"Table {table.schema}.{table.name} belongs to {found}; nothing was changed.",
            f"Name another table. If this database is a copy, or {found} is gone for good, run "
            f"`memory migrate --replaces {found.uid}` with this connection string.",
        )


async def write_claim(
    connection: AnyConnection, table: MemoryTable, claim: TableClaim | None, replaces: str | None
) -> None:
    """Record a claim; with `claim` None, delete the claim of the MemoryIndex whose uid is `replaces`.

    The caller holds the migration lock and has called `require_claimable` under it.
    """
    found = await read_claim(connection, table)
    if found == claim or (claim is None and found is not None and found.uid != replaces):
        return
    with translated("recording whose table it is"):
        text = claim.to_json() if claim else None
        await connection.execute(await connection.fetchval(_WRITE, table.own("memory_index_state"), text))
