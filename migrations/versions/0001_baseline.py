"""Creates the table of memories unless it exists, adds the embedding column, and creates our own tables.

The triggers, the constraint and the partial indexes of the table of memories are no part of a revision: `memory
migrate` compares them with their definitions in `memory_recall.schema.rules` after the last revision, and creates what
is missing. No revision adds the standby column, because only a swap knows its dimensions.

Every statement may be repeated, because a migration that was killed runs this revision again.
"""

from typing import Any

from alembic import context

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the memory API's table of memories unless there is one; add what vectors need if pgvector exists."""
    with context.config.attributes["steps"]() as steps:
        _create_memories(steps)
        steps.require_extension()
        _create_models_and_state(steps)
        _record_state(steps)
        _create_failures(steps)
        _create_truncated_texts(steps)
        _create_swaps(steps)
        _create_supersessions(steps)
        steps.run("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {vector_column} {vectors}.halfvec({dimensions})")
        if steps.value("SELECT {search_added}") is True:
            steps.run("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {search_column} tsvector")
        _raise_statistics_target(steps)


def _create_memories(steps: Any) -> None:  # noqa: ANN401  (revisions import nothing of ours, types included)
    if steps.value("SELECT to_regclass({table_literal}) IS NOT NULL") is True:
        return
    steps.run(
        """
        CREATE TABLE IF NOT EXISTS {table} (
            id serial PRIMARY KEY,
            content text NOT NULL,
            category varchar(50) DEFAULT 'facts',
            tags text DEFAULT '',
            expanded_keywords text DEFAULT '',
            importance real DEFAULT 0.5,
            is_sensitive boolean NOT NULL DEFAULT false,
            user_id varchar(100) NOT NULL DEFAULT 'default',
            deleted_at timestamptz,
            created_at timestamptz NOT NULL DEFAULT now(),
            updated_at timestamptz NOT NULL DEFAULT now(),
            search_vector tsvector GENERATED ALWAYS AS (
                setweight(to_tsvector('english', coalesce(content, '')), 'A')
                || setweight(to_tsvector('english', coalesce(expanded_keywords, '')), 'B')
                || setweight(to_tsvector('english', coalesce(tags, '')), 'C')
                || setweight(to_tsvector('english', coalesce(category, '')), 'D')
            ) STORED
        )
        """
    )
    steps.run("CREATE INDEX IF NOT EXISTS {search_index} ON {table} USING gin (search_vector)")
    steps.run("CREATE INDEX IF NOT EXISTS {user_index} ON {table} (user_id)")
    steps.run("CREATE INDEX IF NOT EXISTS {updated_index} ON {table} (updated_at)")


def _create_models_and_state(steps: Any) -> None:  # noqa: ANN401  (as above)
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
            created_at timestamptz NOT NULL DEFAULT now(),
            embedder_url text
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
            updated_at timestamptz NOT NULL DEFAULT now(),
            table_oid regclass,
            wanted_at timestamptz,
            column_names jsonb NOT NULL DEFAULT '{{}}'
        )
        """
    )


def _record_state(steps: Any) -> None:  # noqa: ANN401  (as above)
    """Store the model and the run's decisions before the column is added, so that a repeated run follows them."""
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
        INSERT INTO {schema}."memory_index_state{suffix}"
            (table_name, active_model, column_adopted, discarding, column_names)
        SELECT {name_literal}, id, {adopted}, {discarding}, {column_names} FROM model
        """
    )


def _create_failures(steps: Any) -> None:  # noqa: ANN401  (as above)
    """Create the tables of rows that could not be embedded, for the active model and for the next one of a swap."""
    steps.run(
        """
        CREATE TABLE IF NOT EXISTS {schema}."memory_embedding_failures{suffix}" (
            id {key} PRIMARY KEY,
            text_hash text NOT NULL,
            attempts integer NOT NULL CHECK (attempts > 0),
            error_class text NOT NULL,
            next_attempt timestamptz NOT NULL,
            updated_at timestamptz NOT NULL DEFAULT now()
        )
        """
    )
    steps.run(
        'CREATE TABLE IF NOT EXISTS {schema}."memory_standby_failures{suffix}" '
        '(LIKE {schema}."memory_embedding_failures{suffix}" INCLUDING ALL)'
    )


def _create_truncated_texts(steps: Any) -> None:  # noqa: ANN401  (as above)
    """Create the record of the texts whose end a model has not read; it holds no text."""
    steps.run(
        """
        CREATE TABLE IF NOT EXISTS {schema}."memory_truncated_texts{suffix}" (
            id {key} NOT NULL,
            model integer NOT NULL,
            PRIMARY KEY (id, model)
        )
        """
    )


def _create_swaps(steps: Any) -> None:  # noqa: ANN401  (as above)
    """Create the table of swaps, of which at most one is open."""
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


def _create_supersessions(steps: Any) -> None:  # noqa: ANN401  (as above)
    """Create the journal of `memory curate`: which memory supersedes which, since when, and until when.

    It holds ids and keyed hashes of texts, but no text. A memory is superseded by at most one other at a time.
    """
    steps.run(
        """
        CREATE TABLE IF NOT EXISTS {schema}."memory_supersessions{suffix}" (
            step bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            run bigint NOT NULL,
            action text NOT NULL CHECK (action IN ('UPDATE', 'SUPERSEDE')),
            id {key} NOT NULL,
            superseded_by {key} NOT NULL CHECK (superseded_by <> id),
            text_hash text NOT NULL,
            successor_hash text NOT NULL,
            link_id bigint,
            applied_at timestamptz NOT NULL DEFAULT now(),
            undone_at timestamptz
        )
        """
    )
    steps.run(
        'CREATE UNIQUE INDEX IF NOT EXISTS "memory_supersessions_current{suffix}" '
        'ON {schema}."memory_supersessions{suffix}" (id) WHERE undone_at IS NULL'
    )
    steps.run(
        'CREATE INDEX IF NOT EXISTS "memory_supersessions_successor{suffix}" '
        'ON {schema}."memory_supersessions{suffix}" (superseded_by) WHERE undone_at IS NULL'
    )


def _raise_statistics_target(steps: Any) -> None:  # noqa: ANN401  (as above)
    """Set the statistics target of the search column to 300 and run ANALYZE, unless somebody has set another target.

    The lexical leg reads the rows of the rarest words of a query. By default Postgres keeps the frequencies of a
    thousand lexemes. In a million rows the thousandth most frequent lexeme occurs in five thousand rows, so the rarest
    words of most queries would have no known frequency. With the target 300 Postgres keeps 3,000 frequencies. ANALYZE
    then reads 90,000 rows, and a recall reads 3,000 frequencies instead of 1,000.
    """
    target = steps.value(
        "SELECT coalesce(attstattarget, -1) FROM pg_attribute WHERE attrelid = {table_literal}::regclass "
        "AND attname = {search_literal} AND atttypid = 'tsvector'::regtype AND NOT attisdropped"
    )
    if target in {-1, 300}:  # 300: a run that was killed before ANALYZE
        steps.run("ALTER TABLE {table} ALTER COLUMN {search_column} SET STATISTICS 300")
        steps.run("ANALYZE {table} ({search_column})")
