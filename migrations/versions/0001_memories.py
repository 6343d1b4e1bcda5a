"""The table of memories, in the memory API's shape, where there is none yet."""

from memory_recall.schema.ddl import steps
from memory_recall.schema.table import quoted

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `memories` unless it exists; the API's own table is left exactly as it is."""
    with steps() as run:
        table = run.target.table
        if table.exists:
            return
        run.run(
            f"""
            CREATE TABLE IF NOT EXISTS {table.qualified} (
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
        for suffix, definition in (
            ("search", "USING gin (search_vector)"),
            ("user", "(user_id)"),
            ("updated", "(updated_at)"),
        ):
            index = quoted(f"idx_{table.name}_{suffix}")
            run.run(f"CREATE INDEX IF NOT EXISTS {index} ON {table.qualified} {definition}")


def downgrade() -> None:
    """Keep the table: whoever created it, its rows are the user's."""
