"""Adds the usual cosine of a model, from which the relevance of a memory is computed. The workers find it."""

from alembic import context

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, NULL until a worker has found it; the table of models has a few rows, so the lock is short."""
    with context.config.attributes["steps"]() as steps:
        steps.run(
            'ALTER TABLE {schema}."memory_index_models{suffix}" ADD COLUMN IF NOT EXISTS usual_cosine double precision '
            "CHECK (usual_cosine >= -1 AND usual_cosine < 1)"
        )
