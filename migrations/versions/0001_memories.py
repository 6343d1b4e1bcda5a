"""Creates the table of memories as the memory API defines it, unless it exists."""

from alembic import context

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table unless it exists. An existing table, such as that of the memory API, is not changed."""
    with context.config.attributes["steps"]() as steps:
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
        steps.run('CREATE INDEX IF NOT EXISTS "idx_{name}_search" ON {table} USING gin (search_vector)')
        steps.run('CREATE INDEX IF NOT EXISTS "idx_{name}_user" ON {table} (user_id)')
        steps.run('CREATE INDEX IF NOT EXISTS "idx_{name}_updated" ON {table} (updated_at)')
