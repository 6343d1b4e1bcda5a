"""Adds the journal of `memory curate`: which memory supersedes which, since when, and until when.

The journal holds ids and keyed hashes of texts, but no text. The triggers of the table of memories delete the hashes
when a text changes or its row becomes sensitive or deleted. A recall reads only entries that are not undone, whose
texts have not changed since, and whose newer memory is neither sensitive nor deleted.
"""

from alembic import context

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the journal. Its index makes sure that a memory is superseded by at most one other at a time."""
    with context.config.attributes["steps"]() as steps:
        steps.run(
            """
            CREATE TABLE IF NOT EXISTS {schema}."memory_supersessions{suffix}" (
                step bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                run bigint NOT NULL,
                action text NOT NULL CHECK (action IN ('UPDATE', 'SUPERSEDE')),
                id bigint NOT NULL,
                superseded_by bigint NOT NULL CHECK (superseded_by <> id),
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
