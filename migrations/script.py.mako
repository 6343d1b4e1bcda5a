"""${message}.

A revision is never changed once released. It imports nothing of ours; env.py lists what its statements may name.
"""

from alembic import context

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Say what is added; every statement may be repeated."""
    with context.config.attributes["steps"]() as steps:
        steps.run("SELECT 1")


def downgrade() -> None:
    """Say what is removed."""
    with context.config.attributes["steps"]() as steps:
        steps.run("SELECT 1")
