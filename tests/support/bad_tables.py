"""Tables that cannot be adopted as they are, and what has to be said of each at once."""

from dataclasses import dataclass

_OPTIONS = ("--no-sensitive",)


@dataclass(frozen=True)
class BadTable:
    """A table named `notes` with faults.

    `create` makes it, as the owner of the database. `named` are parts of what `memory adopt` says of it, all of which
    one look must give: each fault, and of its remedy the statement or the option. `options` are those of the command.
    """

    name: str
    create: str
    named: tuple[str, ...]
    options: tuple[str, ...] = _OPTIONS


def _typed(column: str, kind: str, *named: str, options: tuple[str, ...] = _OPTIONS) -> BadTable:
    """Return a table of which one column has a type that cannot be used."""
    others = {"id": "bigint PRIMARY KEY", "content": "text"} | {column: kind}
    columns = ", ".join(f"{name} {described}" for name, described in others.items())
    return BadTable(f"{column} {kind}", f"CREATE TABLE notes ({columns})", named, options)


def _holding(kind: str, *named: str) -> BadTable:
    """Return a table in whose column `embedding` our vectors are to be, which is of a type that cannot hold them."""
    options = ("--no-sensitive", "--column", "embedding=embedding")
    create = _PLAIN.format(f", embedding {kind}")
    return BadTable(f"embedding {kind} for our vectors", create, (*named, "embedding=memory_embedding"), options)


def _keyed(name: str, columns: str, after: str, *named: str) -> BadTable:
    """Return a table whose ids are not kept unique."""
    return BadTable(name, f"CREATE TABLE notes ({columns}, content text); {after}", named)


_UNIQUE = ("unique by itself", 'CREATE UNIQUE INDEX CONCURRENTLY ON "public"."notes" (id)')
_ALTER = 'ALTER TABLE "public"."notes" ALTER COLUMN '
_PLAIN = "CREATE TABLE notes (id bigint PRIMARY KEY, content text{})"

BAD_TABLES = (
    # No word about which rows are secret, or several.
    BadTable("nothing about secrets", _PLAIN.format(""), ("which rows are secret", "--no-sensitive", "ADD COLUMN"), ()),
    BadTable(
        "two marks of secrets", _PLAIN.format(", secret boolean, private boolean"),
        ("secret and private are equally likely", "--column is_sensitive=secret", "--column is_sensitive=private"), (),
    ),
    _typed("is_sensitive", "text", _ALTER + "is_sensitive TYPE boolean", options=()),
    _typed("is_sensitive", "numeric", _ALTER + "is_sensitive TYPE boolean", options=()),
    _typed("secret", "varchar(3)", _ALTER + "secret TYPE boolean", options=()),
    _typed("is_sensitive", "jsonb", "is_sensitive->>'KEY'", options=()),
    # The text.
    BadTable("no text", "CREATE TABLE notes (id bigint PRIMARY KEY, n integer)", ("no column content", "ADD COLUMN")),
    BadTable(
        "two texts", "CREATE TABLE notes (id bigint PRIMARY KEY, body text, note text)",
        ("body and note are equally likely", "--content body --content note for all"),
    ),
    BadTable(
        "two keys of documents",
        """CREATE TABLE notes (id bigint PRIMARY KEY, doc jsonb);
        INSERT INTO notes VALUES (1, '{"text": "a", "body": "b"}')""",
        ("doc->>'body' and doc->>'text' are equally likely", "--content"),
    ),
    _typed("content", "bytea", _ALTER + "content TYPE text USING convert_from(content, 'UTF8')"),
    _typed("content", "jsonb", "Name a key of it", "content->>'KEY'"),
    _typed("content", "text[]", "array_to_string(content, ',')"),
    _typed("content", "integer", _ALTER + "content TYPE text"),
    BadTable(
        "a generated text",
        "CREATE TABLE notes (id bigint PRIMARY KEY, b text, content text GENERATED ALWAYS AS (b) STORED)",
        ("generated column (stored)", "DROP EXPRESSION"),
    ),
    BadTable(
        "a virtual text",
        "CREATE TABLE notes (id bigint PRIMARY KEY, b text, content text GENERATED ALWAYS AS (b) VIRTUAL)",
        ("generated column (virtual)", "DROP COLUMN content, ADD COLUMN content text"),
    ),
    # The key.
    _keyed("no key", "id bigint", "", *_UNIQUE),
    _keyed("a key with the tenant", "id bigint, user_id text, PRIMARY KEY (user_id, id)", "", *_UNIQUE),
    _keyed("a key before the tenant", "id bigint, user_id text, PRIMARY KEY (id, user_id)", "", *_UNIQUE),
    _keyed("a deferrable key", "id bigint PRIMARY KEY DEFERRABLE", "", "is deferrable", *_UNIQUE),
    _keyed("a partial index", "id bigint, a bool", "CREATE UNIQUE INDEX ON notes (id) WHERE a", "is partial", *_UNIQUE),
    _keyed("an index that is not unique", "id bigint", "CREATE INDEX ON notes (id)", *_UNIQUE),
    _keyed("an index over an expression", "id bigint", "CREATE UNIQUE INDEX ON notes ((id + 0))", *_UNIQUE),
    _keyed("a hash index", "id bigint", "CREATE INDEX ON notes USING hash (id)", *_UNIQUE),
    BadTable(
        "no column for a key", "CREATE TABLE notes (content text)", ("no column id", "ADD COLUMN id bigint GENERATED"),
    ),
    _typed("id", "numeric PRIMARY KEY", _ALTER + "id TYPE bigint"),
    _typed("id", "bytea PRIMARY KEY", _ALTER + "id TYPE bigint"),
    BadTable(
        "a generated key",
        "CREATE TABLE notes (n integer, id bigint GENERATED ALWAYS AS (n) STORED PRIMARY KEY, content text)",
        ("generated column (stored)", "DROP EXPRESSION"),
    ),
    BadTable(
        "two unique columns", "CREATE TABLE notes (address text UNIQUE, place text UNIQUE, content text)",
        ("address and place are equally likely for id", "--column id=address"),
    ),
    # The mark of deletion.
    _typed("deleted_at", "timestamptz NOT NULL DEFAULT now()", "NOT NULL, so every memory", "DROP NOT NULL"),
    _typed("deleted_at", "bigint", _ALTER + "deleted_at TYPE timestamp with time zone"),
    _typed("deleted_at", "text", _ALTER + "deleted_at TYPE timestamp with time zone"),
    _typed("deleted_at", "date", _ALTER + "deleted_at TYPE timestamp with time zone"),
    _typed("deleted", "smallint", _ALTER + "deleted TYPE timestamp with time zone"),
    BadTable(
        "two marks of deletion", _PLAIN.format(", deleted boolean, removed_at timestamptz"),
        ("deleted and removed_at are equally likely", "--column deleted_at=deleted", "--column deleted_at= for none"),
    ),
    BadTable(
        "a generated mark", _PLAIN.format(", gone boolean, deleted boolean GENERATED ALWAYS AS (gone) STORED"),
        ("deleted of", "generated column (stored)", "DROP EXPRESSION"),
    ),
    # Whose a memory is.
    _typed("user_id", "jsonb", "user_id->>'KEY'"),
    _typed("user_id", "numeric", _ALTER + "user_id TYPE text"),
    _typed("owner", "text[]", "array_to_string(owner, ',')"),
    BadTable(
        "two owners", _PLAIN.format(", owner text, account_id uuid"),
        ("owner and account_id are equally likely", "--column user_id= for none"),
    ),
    # Vectors that are there, in a column that is to hold ours as well.
    _holding("vector(384)", 'TYPE "public".halfvec(384)', "--existing-vectors keep"),
    _holding("vector(1536)", "cannot hold vectors of all-MiniLM-L6-v2"),
    _holding("vector", 'TYPE "public".halfvec(384)'),
    _holding("halfvec(768)", "cannot hold vectors of all-MiniLM-L6-v2"),
    _holding("real[]", "embedding of", "is real[]"),
    # What is no table of its own.
    BadTable(
        "a view", f"{_PLAIN.format('')}; ALTER TABLE notes RENAME TO r; CREATE VIEW notes AS TABLE r",
        ("is not a table", "Name the table of memories"),
    ),
    BadTable(
        "a materialized view", "CREATE MATERIALIZED VIEW notes AS SELECT 1::bigint AS id, 'x'::text AS content",
        ("is not a table", "Name the table of memories"),
    ),
    BadTable(
        "a parent of others", f"{_PLAIN.format('')}; CREATE TABLE more () INHERITS (notes)",
        ("Other tables inherit", "NO INHERIT"),
    ),
    BadTable(
        "partitions of partitions",
        """CREATE TABLE notes (id bigint, k int, content text, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
        CREATE TABLE p PARTITION OF notes FOR VALUES IN (1) PARTITION BY LIST (id)""",
        ("Partition public.p", "partitioned itself", "DETACH PARTITION public.p"),
    ),
    BadTable(
        "a partitioned table without an index that begins with the key",
        """CREATE TABLE notes (id bigint, k int, content text, PRIMARY KEY (k, id)) PARTITION BY LIST (k);
        CREATE TABLE p PARTITION OF notes FOR VALUES IN (1)""",
        ("no index that begins with id", 'CREATE INDEX ON "public"."notes" (id)'),
    ),
    BadTable(
        "policies that hide rows",
        f"""{_PLAIN.format(", user_id text")}; ALTER TABLE notes ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
        CREATE POLICY own ON notes USING (user_id = current_user)""",
        ("Row-level security hides rows", "CREATE POLICY"),
    ),
    # Several at once.
    BadTable(
        "everything at once",
        """CREATE TABLE notes (id bigint, content bytea, deleted_at bigint, user_id jsonb, embedding vector(3), k text,
            is_sensitive text)""",
        (
            "Column content", "is bytea", "Column deleted_at", "is bigint", "user_id->>'KEY'", "cannot hold vectors",
            _ALTER + "is_sensitive", *_UNIQUE,
        ),
        ("--column", "embedding=embedding"),
    ),
    BadTable(
        "names that SQL reserves",
        """CREATE TABLE notes ("order" bigint, "select" text, "from" text, deleted_at date)""",
        ("unique by itself", 'ON "public"."notes" ("order")', "deleted_at TYPE timestamp with time zone"),
        ("--no-sensitive", "--column", "id=order", "--content", "select"),
    ),
    BadTable(
        "names that the table does not have", _PLAIN.format(""),
        ("no column bdy, which is named for content", "no column labels, which is named for tags"),
        ("--no-sensitive", "--content", "bdy", "--column", "tags=labels"),
    ),
)  # fmt: skip
