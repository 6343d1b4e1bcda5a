"""Adds what a model swap stores: a table of swaps, embedders' addresses, and the rows that could not be embedded.

No revision adds the standby column itself, because only a swap knows its dimensions: `memory swap start` adds the
column with its triggers and constraint. `memory swap finish`, `memory swap abort` and `memory migrate --to base`
remove it.
"""

from alembic import context

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

STANDBY_GUARD = (
    """
        CREATE OR REPLACE FUNCTION {schema}."memory_index_guard_standby{suffix}"() RETURNS trigger LANGUAGE plpgsql
        SET search_path = pg_catalog, {vectors} AS $guard$
        BEGIN
            IF current_setting('memory_index.writer', true) IS DISTINCT FROM 'guarded' THEN
                IF NEW.embedding IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.embedding IS DISTINCT FROM OLD.embedding) THEN
                    NEW.embedding := NULL;
                    PERFORM pg_notify('memory_index_pending', TG_TABLE_NAME);
                END IF;
                IF NEW.embedding_standby IS NOT NULL """
    """AND (TG_OP = 'INSERT' OR NEW.embedding_standby IS DISTINCT FROM OLD.embedding_standby) THEN
                    NEW.embedding_standby := NULL;
                END IF;
            END IF;
            IF TG_OP = 'UPDATE' AND NEW.content IS DISTINCT FROM OLD.content THEN
                NEW.embedding_standby := NULL;
            END IF;
            IF NOT (NOT (NEW.is_sensitive {sensitive}) AND NEW.deleted_at IS NULL) THEN
                NEW.embedding_standby := NULL;
            END IF;
            RETURN NEW;
        END
        $guard$
        """
)


def upgrade() -> None:
    """Add the table of swaps, the addresses of embedders, and the table of rows that a swap could not embed."""
    with context.config.attributes["steps"]() as steps:
        steps.run('ALTER TABLE {schema}."memory_index_models{suffix}" ADD COLUMN IF NOT EXISTS embedder_url text')
        steps.run(
            """
            CREATE TABLE IF NOT EXISTS {schema}."memory_index_swaps{suffix}" (
                id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                stage text NOT NULL CHECK (stage IN ('planned', 'filling', 'indexing', 'gating', 'ready', 'refused',
                                                     'flipped', 'finished', 'aborted')),
                from_model integer NOT NULL REFERENCES {schema}."memory_index_models{suffix}",
                to_model integer NOT NULL REFERENCES {schema}."memory_index_models{suffix}",
                gate jsonb,
                message text NOT NULL DEFAULT '',
                started_at timestamptz NOT NULL DEFAULT now(),
                updated_at timestamptz NOT NULL DEFAULT now(),
                flipped_at timestamptz
            )
            """
        )
        steps.run(
            'CREATE UNIQUE INDEX IF NOT EXISTS "memory_index_swaps_one_open{suffix}" '
            'ON {schema}."memory_index_swaps{suffix}" ((true)) '
            "WHERE stage IN ('planned', 'filling', 'indexing', 'gating', 'ready', 'refused')"
        )
        steps.run(
            'CREATE TABLE IF NOT EXISTS {schema}."memory_standby_failures{suffix}" '
            '(LIKE {schema}."memory_embedding_failures{suffix}" INCLUDING ALL)'
        )
        steps.run(STANDBY_GUARD)
        # A function's body is read as of now, as column names are, where a row is seen as of a snapshot: in a
        # transaction that began before a flip the two still agree.
        active = steps.value('SELECT active_model FROM {schema}."memory_index_state{suffix}"')
        steps.run(
            'CREATE OR REPLACE FUNCTION {schema}."memory_index_column_model{suffix}"() RETURNS integer '
            f"LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT {active}'"
        )
