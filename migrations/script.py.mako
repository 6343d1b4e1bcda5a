"""${message}."""

from alembic import op

from memory_recall.schema.ddl import steps

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Say what is added."""


def downgrade() -> None:
    """Say what is removed."""
