"""Adds the embedding column, the triggers and the constraint that protect sensitive rows, and our own tables.

The order matters because other sessions write at the same time: the trigger and the constraint are created first and
check new writes; then vectors that break the rules are removed. Every step may be repeated, because a killed migration
runs this revision again.
"""

from typing import Any

from alembic import context

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the embedding column, its triggers and constraint, two partial indexes, and our own tables."""
    with context.config.attributes["steps"]() as steps:
        _create_own_tables(steps)
        _record_state(steps)
        _create_functions(steps)
        steps.run("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS embedding {vectors}.halfvec({dimensions})")
        _create_triggers(steps)
        _create_constraint(steps)
        steps.build_index(
            "idx_{name}_embedding_pending",
            "ON {table} (id) WHERE (embedding IS NULL AND (NOT (is_sensitive {sensitive}) AND deleted_at IS NULL))",
        )
        steps.build_index(
            "idx_{name}_embedding_withheld",
            "ON {table} (id) WHERE NOT (NOT (is_sensitive {sensitive}) AND deleted_at IS NULL)",
        )


def _create_own_tables(steps: Any) -> None:  # noqa: ANN401  (revisions import nothing of ours, types included)
    steps.run(
        """
        CREATE TABLE IF NOT EXISTS {schema}."memory_index_models{suffix}" (
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
    steps.run(
        """
        CREATE TABLE IF NOT EXISTS {schema}."memory_index_state{suffix}" (
            singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
            table_name text NOT NULL,
            active_model integer NOT NULL REFERENCES {schema}."memory_index_models{suffix}",
            next_model integer REFERENCES {schema}."memory_index_models{suffix}",
            column_adopted boolean NOT NULL,
            discarding boolean NOT NULL,
            updated_at timestamptz NOT NULL DEFAULT now()
        )
        """
    )
    steps.run(
        """
        CREATE TABLE IF NOT EXISTS {schema}."memory_embedding_failures{suffix}" (
            id bigint PRIMARY KEY,
            text_hash text NOT NULL,
            attempts integer NOT NULL CHECK (attempts > 0),
            error_class text NOT NULL,
            next_attempt timestamptz NOT NULL,
            updated_at timestamptz NOT NULL DEFAULT now()
        )
        """
    )


def _record_state(steps: Any) -> None:  # noqa: ANN401  (as above)
    """Store the model and the run's decisions before the first change, so that a repeated run follows them."""
    if steps.value('SELECT count(*) FROM {schema}."memory_index_state{suffix}"') != 0:
        return
    steps.run(
        """
        WITH model AS (
            INSERT INTO {schema}."memory_index_models{suffix}"
                (name, dimensions, pooling, max_tokens, query_prefix, document_prefix)
            VALUES ({model}, {dimensions}, {pooling}, {max_tokens}, {query_prefix}, {document_prefix})
            RETURNING id
        )
        INSERT INTO {schema}."memory_index_state{suffix}" (table_name, active_model, column_adopted, discarding)
        SELECT {name_literal}, id, {adopted}, {discarding} FROM model
        """
    )


def _create_functions(steps: Any) -> None:  # noqa: ANN401  (as above)
    steps.run(
        """
        CREATE OR REPLACE FUNCTION {schema}."memory_index_text_hash{suffix}"(content text) RETURNS text
        LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT pg_catalog.md5(content)'
        """
    )
    steps.run(
        """
        CREATE OR REPLACE FUNCTION {schema}."memory_index_guard{suffix}"() RETURNS trigger LANGUAGE plpgsql AS $guard$
        BEGIN
            IF TG_OP = 'UPDATE' AND NEW.content IS DISTINCT FROM OLD.content THEN
                NEW.embedding := NULL;
            END IF;
            IF NOT (NOT (NEW.is_sensitive {sensitive}) AND NEW.deleted_at IS NULL) THEN
                NEW.embedding := NULL;
            ELSIF NEW.embedding IS NULL THEN
                PERFORM pg_catalog.pg_notify('memory_index_pending', TG_TABLE_NAME);
            END IF;
            RETURN NEW;
        END
        $guard$
        """
    )


def _create_triggers(steps: Any) -> None:  # noqa: ANN401  (as above)
    """Create the triggers with names that sort last, so that they see the changes of all other triggers."""
    steps.run(
        "CREATE OR REPLACE TRIGGER zz_memory_index_insert BEFORE INSERT ON {table} "
        'FOR EACH ROW EXECUTE FUNCTION {schema}."memory_index_guard{suffix}"()'
    )
    # The condition spares the write back of a vector, by far the most frequent update, the call of the function.
    steps.run(
        "CREATE OR REPLACE TRIGGER zz_memory_index_update BEFORE UPDATE ON {table} FOR EACH ROW "
        "WHEN (NEW.embedding IS NULL OR NOT (NOT (NEW.is_sensitive {sensitive}) AND NEW.deleted_at IS NULL) "
        "OR NEW.content IS DISTINCT FROM OLD.content) "
        'EXECUTE FUNCTION {schema}."memory_index_guard{suffix}"()'
    )
    # Rows that logical replication or a restore with triggers off brings in must obey the rules as well.
    steps.run("ALTER TABLE {table} ENABLE ALWAYS TRIGGER zz_memory_index_insert")
    steps.run("ALTER TABLE {table} ENABLE ALWAYS TRIGGER zz_memory_index_update")


def _create_constraint(steps: Any) -> None:  # noqa: ANN401  (as above)
    exists = steps.value(
        "SELECT EXISTS (SELECT FROM pg_constraint WHERE conname = 'memory_index_no_private_embedding' "
        "AND conrelid = {table_literal}::regclass)"
    )
    if not exists:
        steps.run(
            "ALTER TABLE {table} ADD CONSTRAINT memory_index_no_private_embedding "
            "CHECK (embedding IS NULL OR (NOT (is_sensitive {sensitive}) AND deleted_at IS NULL)) NOT VALID"
        )
    steps.repeat_until_done(
        "UPDATE {table} SET embedding = NULL WHERE id IN (SELECT id FROM {table} WHERE embedding IS NOT NULL "
        "AND NOT (NOT (is_sensitive {sensitive}) AND deleted_at IS NULL) ORDER BY id LIMIT 2000)"
    )
    if steps.value('SELECT discarding FROM {schema}."memory_index_state{suffix}"') is True:
        steps.repeat_until_done(
            "UPDATE {table} SET embedding = NULL "
            "WHERE id IN (SELECT id FROM {table} WHERE embedding IS NOT NULL ORDER BY id LIMIT 2000)"
        )
        steps.run('UPDATE {schema}."memory_index_state{suffix}" SET discarding = false, updated_at = now()')
    steps.run("ALTER TABLE {table} VALIDATE CONSTRAINT memory_index_no_private_embedding")
