"""The three stores: a plain table, one with other names, a uuid key and the graph, and a partitioned one.

They are plain SQL and plain data. The process that writes and observes uses nothing else of a store.
"""

import uuid
from dataclasses import dataclass, field
from typing import Any

USERS = ("ada", "bob", "cleo", "dan")
_SEARCH = "GENERATED ALWAYS AS (to_tsvector('english', {text})) STORED"


@dataclass(frozen=True)
class Store:
    """One store: its namespace, its table in SQL, and what its MemoryIndex says of it.

    `key` is the type of the key, and `conflict` the columns by which a row is known. `links` selects, among the
    keys `$1`, those of which something is kept beside the table, once for each thing. With `pooled`, recalls go through
    a pooler.
    """

    name: str
    table: str
    create: str
    key: str
    conflict: str
    id: str = "id"
    owner: str = "user_id"
    content: str = "content"
    sensitive: str = "is_sensitive"
    deleted: str = "deleted_at"
    vector: str = "embedding"
    links: str = ""
    pooled: bool = False
    spec: dict[str, Any] = field(default_factory=dict)

    @property
    def relation(self) -> str:
        """The table's name, quoted for SQL."""
        return ".".join(f'"{part}"' for part in self.table.split("."))

    def key_of(self, number: int) -> str:
        """Return the key of the row of this number, as text."""
        return str(uuid.UUID(int=number)) if self.key == "uuid" else str(number)

    @property
    def upsert(self) -> str:
        """The statement that brings a row into a state: key, owner, text, whether it is sensitive and deleted."""
        columns = f'{self.id}, "{self.owner}", "{self.content}", "{self.sensitive}", "{self.deleted}"'
        values = f"$1::text::{self.key}, $2, $3, $4, CASE WHEN $5::bool THEN now() END"
        changes = ", ".join(
            f'"{column}" = excluded."{column}"' for column in (self.content, self.sensitive, self.deleted)
        )
        return f"""
            INSERT INTO {self.relation} ({columns}) VALUES ({values})
            ON CONFLICT ({self.conflict}) DO UPDATE SET {changes}
        """

    @property
    def handover(self) -> str:
        """The statement that gives a row, by its key, to another owner; of a partitioned table into its partition."""
        return f'UPDATE {self.relation} SET "{self.owner}" = $2 WHERE {self.id} = $1::text::{self.key}'

    @property
    def removal(self) -> str:
        """The statement that removes a row, by its key."""
        return f"DELETE FROM {self.relation} WHERE {self.id} = $1::text::{self.key}"

    @property
    def everything(self) -> str:
        """The statement that reads every row: key, text, owner, whether it is sensitive, deleted, and has a vector."""
        return f"""
            SELECT {self.id}::text, "{self.content}", "{self.owner}", "{self.sensitive}", "{self.deleted}" IS NOT NULL,
                   "{self.vector}" IS NOT NULL
            FROM {self.relation}
        """

    @property
    def vectors_of(self) -> str:
        """The statement that selects, among the keys `$1`, those of rows that have vectors, once for each vector.

        All columns that hold vectors count; while the model of a store is exchanged there are two.
        """
        return f"""
            SELECT {self.id}::text FROM {self.relation} AS present, jsonb_each(to_jsonb(present)) AS field
            WHERE {self.id} = ANY($1::text[]::{self.key}[]) AND field.value <> 'null' AND field.key IN (
                SELECT attname FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
                WHERE attrelid = '{self.relation}'::regclass AND typname IN ('vector', 'halfvec')
            )
        """

    @property
    def sample(self) -> str:
        """The statement that reads some rows that have a vector: text and vector, of one moment."""
        return f"""
            SELECT "{self.content}", "{self.vector}"::text FROM {self.relation}
            WHERE "{self.vector}" IS NOT NULL ORDER BY random() LIMIT 12
        """


_COLUMNS = """
    content text NOT NULL, category varchar(50) DEFAULT 'facts', tags text DEFAULT '',
    expanded_keywords text DEFAULT '', importance real DEFAULT 0.5, is_sensitive boolean NOT NULL DEFAULT false,
    user_id varchar(100) NOT NULL DEFAULT 'ada', deleted_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(),
    search_vector tsvector
""" + _SEARCH.format(text="content")

PLAIN = Store(
    "soak-plain",
    "memories",
    f"""
    CREATE TABLE memories (id bigint PRIMARY KEY, {_COLUMNS});
    CREATE INDEX ON memories USING gin (search_vector);
    """,
    "bigint",
    "id",
)
NAMED = Store(
    "soak-named",
    "app.Notes",
    """
    CREATE SCHEMA app;
    CREATE TABLE app."Notes" (
        uuid uuid PRIMARY KEY, body text NOT NULL, "User Id" text NOT NULL,
        "isSecret" boolean NOT NULL DEFAULT false, "deletedAt" timestamptz,
        "createdAt" timestamptz NOT NULL DEFAULT now(),
        words tsvector GENERATED ALWAYS AS (to_tsvector('english', body)) STORED);
    CREATE INDEX ON app."Notes" USING gin (words);
    """,
    "uuid",
    "uuid",
    id="uuid",
    owner="User Id",
    content="body",
    sensitive="isSecret",
    deleted="deletedAt",
    links="SELECT memory_id::text FROM app.memory_concepts WHERE memory_id = ANY($1::text[]::uuid[])",
    spec={
        "database__table": "app.Notes",
        "database__columns": {
            "id": "uuid", "content": ["body"], "userId": "User Id", "sensitive": "isSecret",
            "deletedAt": "deletedAt", "createdAt": "createdAt", "searchVector": "words",
        },
        "graph__enabled": True,
    },
)  # fmt: skip
PARTED = Store(
    "soak-parted",
    "memories",
    f"CREATE TABLE memories (id bigint, {_COLUMNS}, PRIMARY KEY (id, user_id)) PARTITION BY LIST (user_id);"
    + "".join(f"CREATE TABLE memories_{user} PARTITION OF memories FOR VALUES IN ('{user}');" for user in USERS)
    + "CREATE INDEX ON memories USING gin (search_vector);",
    "bigint",
    "id, user_id",
    pooled=True,
)
STORES = (PLAIN, NAMED, PARTED)
EMBEDDER_OF = {PLAIN.name: PLAIN.name, NAMED.name: NAMED.name, PARTED.name: PLAIN.name}
"""The store whose MemoryIndex has the embedder that a store uses: that of the plain store is shared."""
