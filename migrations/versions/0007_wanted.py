"""Records when a recall last wanted an embedder that did not answer, so that the operator can start this embedder."""

from alembic import context

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column `wanted_at`, which recalls write. Releases whose last schema revision is before 0007 ignore it."""
    with context.config.attributes["steps"]() as steps:
        steps.run('ALTER TABLE {schema}."memory_index_state{suffix}" ADD COLUMN IF NOT EXISTS wanted_at timestamptz')
