"""The embedding column, the rules that the database itself keeps about it, and our own tables.

The order matters while others write: the trigger and the constraint guard new writes before old violations are
cleared, so nothing slips in between. Every step may be repeated, because a killed migration starts this revision
again.
"""

from memory_recall.schema.ddl import Steps, literal, steps
from memory_recall.schema.table import EMBEDDING_COLUMN, NOTIFY_CHANNEL, MemoryTable

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

CONSTRAINT = "memory_index_no_private_embedding"
TRIGGERS = ("zz_memory_index_insert", "zz_memory_index_update")  # last by name: they judge what other triggers made
BATCH = 2000


def upgrade() -> None:
    """Add column, rules, queue index and bookkeeping."""
    with steps() as run:
        _create_own_tables(run)
        _record_state(run)
        _create_functions(run)
        run.run(
            f"ALTER TABLE {run.target.table.qualified} ADD COLUMN IF NOT EXISTS {EMBEDDING_COLUMN} "
            f"{run.target.table.vector_type(run.target.model.dimensions)}"
        )
        _create_triggers(run)
        _create_constraint(run)
        _build_queue_indexes(run)


def downgrade() -> None:
    """Remove what this revision added; a column that was there before us stays."""
    with steps() as run:
        table = run.target.table
        adopted = run.value(f"SELECT column_adopted FROM {table.own('memory_index_state')}")
        for trigger in TRIGGERS:
            run.run(f"DROP TRIGGER IF EXISTS {trigger} ON {table.qualified}")
        for suffix in ("pending", "withheld"):
            run.drop_index(f"idx_{table.name}_embedding_{suffix}")
        run.run(f"ALTER TABLE {table.qualified} DROP CONSTRAINT IF EXISTS {CONSTRAINT}")
        if adopted is not True:
            run.run(f"ALTER TABLE {table.qualified} DROP COLUMN IF EXISTS {EMBEDDING_COLUMN}")
        run.run(f"DROP FUNCTION IF EXISTS {table.own('memory_index_guard')}()")
        run.run(f"DROP FUNCTION IF EXISTS {table.own('memory_index_text_hash')}(text)")
        for own in ("memory_embedding_failures", "memory_index_state", "memory_index_models"):
            run.run(f"DROP TABLE IF EXISTS {table.own(own)}")


def _create_own_tables(run: Steps) -> None:
    table = run.target.table
    models = table.own("memory_index_models")
    run.run(
        f"""
        CREATE TABLE IF NOT EXISTS {models} (
            id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name text NOT NULL,
            digest text,
            dimensions integer NOT NULL CHECK (dimensions > 0),
            pooling text,
            max_tokens integer,
            query_prefix text NOT NULL DEFAULT '',
            document_prefix text NOT NULL DEFAULT '',
            created_at timestamptz NOT NULL DEFAULT now()
        )
        """
    )
    run.run(
        f"""
        CREATE TABLE IF NOT EXISTS {table.own("memory_index_state")} (
            singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
            table_name text NOT NULL,
            active_model integer NOT NULL REFERENCES {models},
            next_model integer REFERENCES {models},
            column_adopted boolean NOT NULL,
            discarding boolean NOT NULL,
            updated_at timestamptz NOT NULL DEFAULT now()
        )
        """
    )
    run.run(
        f"""
        CREATE TABLE IF NOT EXISTS {table.own("memory_embedding_failures")} (
            id bigint PRIMARY KEY,
            text_hash text NOT NULL,
            attempts integer NOT NULL CHECK (attempts > 0),
            error_class text NOT NULL,
            next_attempt timestamptz NOT NULL,
            updated_at timestamptz NOT NULL DEFAULT now()
        )
        """
    )


def _record_state(run: Steps) -> None:
    """Write down model and decisions before the first change, so that a repeated run takes the same ones."""
    table, model = run.target.table, run.target.model
    state = table.own("memory_index_state")
    if run.value(f"SELECT count(*) FROM {state}") != 0:
        return
    pooling = "NULL" if model.pooling is None else literal(model.pooling)
    max_tokens = "NULL" if model.max_tokens is None else str(model.max_tokens)
    adopted = "true" if table.embedding_dimensions is not None else "false"
    discarding = "true" if run.target.discard_existing_vectors else "false"
    run.run(
        f"""
        WITH model AS (
            INSERT INTO {table.own("memory_index_models")}
                (name, dimensions, pooling, max_tokens, query_prefix, document_prefix)
            VALUES ({literal(model.name)}, {model.dimensions}, {pooling}, {max_tokens},
                    {literal(model.query_prefix)}, {literal(model.document_prefix)})
            RETURNING id
        )
        INSERT INTO {state} (table_name, active_model, column_adopted, discarding)
        SELECT {literal(table.name)}, id, {adopted}, {discarding} FROM model
        """
    )


def _create_functions(run: Steps) -> None:
    table = run.target.table
    run.run(
        f"""
        CREATE OR REPLACE FUNCTION {table.own("memory_index_text_hash")}(content text) RETURNS text
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS 'SELECT pg_catalog.md5(content)'
        """
    )
    run.run(
        f"""
        CREATE OR REPLACE FUNCTION {table.own("memory_index_guard")}() RETURNS trigger LANGUAGE plpgsql AS $guard$
        BEGIN
            IF TG_OP = 'UPDATE' AND NEW.content IS DISTINCT FROM OLD.content THEN
                NEW.embedding := NULL;
            END IF;
            IF NOT {table.shareable("NEW")} THEN
                NEW.embedding := NULL;
            ELSIF NEW.embedding IS NULL THEN
                PERFORM pg_catalog.pg_notify('{NOTIFY_CHANNEL}', TG_TABLE_NAME);
            END IF;
            RETURN NEW;
        END
        $guard$
        """
    )


def _create_triggers(run: Steps) -> None:
    table = run.target.table
    guard = table.own("memory_index_guard")
    on_insert, on_update = TRIGGERS
    run.run(
        f"CREATE OR REPLACE TRIGGER {on_insert} BEFORE INSERT ON {table.qualified} "
        f"FOR EACH ROW EXECUTE FUNCTION {guard}()"
    )
    # The condition spares the write back of a vector, by far the most frequent update, the call of the function.
    run.run(
        f"CREATE OR REPLACE TRIGGER {on_update} BEFORE UPDATE ON {table.qualified} FOR EACH ROW "
        f"WHEN (NEW.embedding IS NULL OR NOT {table.shareable('NEW')} OR NEW.content IS DISTINCT FROM OLD.content) "
        f"EXECUTE FUNCTION {guard}()"
    )
    for trigger in TRIGGERS:
        # Rows that logical replication or a restore with triggers off brings in must obey the rules as well.
        run.run(f"ALTER TABLE {table.qualified} ENABLE ALWAYS TRIGGER {trigger}")


def _create_constraint(run: Steps) -> None:
    table = run.target.table
    exists = run.value(
        f"SELECT EXISTS (SELECT FROM pg_constraint WHERE conname = {literal(CONSTRAINT)} "
        f"AND conrelid = {literal(table.qualified)}::regclass)"
    )
    if not exists:
        run.run(
            f"ALTER TABLE {table.qualified} ADD CONSTRAINT {CONSTRAINT} "
            f"CHECK ({EMBEDDING_COLUMN} IS NULL OR {table.shareable()}) NOT VALID"
        )
    _clear(run, table, f"NOT {table.shareable()}")
    state = table.own("memory_index_state")
    if run.value(f"SELECT discarding FROM {state}") is True:
        _clear(run, table, "true")
        run.run(f"UPDATE {state} SET discarding = false, updated_at = now()")
    run.run(f"ALTER TABLE {table.qualified} VALIDATE CONSTRAINT {CONSTRAINT}")


def _clear(run: Steps, table: MemoryTable, condition: str) -> None:
    run.repeat_until_done(
        f"UPDATE {table.qualified} SET {EMBEDDING_COLUMN} = NULL WHERE id IN (SELECT id FROM {table.qualified} "
        f"WHERE {EMBEDDING_COLUMN} IS NOT NULL AND {condition} ORDER BY id LIMIT {BATCH})"
    )


def _build_queue_indexes(run: Steps) -> None:
    table = run.target.table
    run.build_index(f"idx_{table.name}_embedding_pending", f"ON {table.qualified} (id) WHERE {table.pending()}")
    run.build_index(f"idx_{table.name}_embedding_withheld", f"ON {table.qualified} (id) WHERE NOT {table.shareable()}")
