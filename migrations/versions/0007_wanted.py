"""Record when a recall last wanted an embedder that did not answer, so that an operator can start one from zero."""

from alembic import context

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, which recalls write; programs of earlier revisions do not know it."""
    with context.config.attributes["steps"]() as steps:
        steps.run('ALTER TABLE {schema}."memory_index_state{suffix}" ADD COLUMN IF NOT EXISTS wanted_at timestamptz')


def downgrade() -> None:
    """Remove the column."""
    with context.config.attributes["steps"]() as steps:
        steps.run('ALTER TABLE {schema}."memory_index_state{suffix}" DROP COLUMN IF EXISTS wanted_at')
