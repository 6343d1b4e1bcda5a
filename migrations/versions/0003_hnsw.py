"""Nothing: this revision built the HNSW index, which has since become state that is reconciled beside the schema.

It stays in the chain because databases are stamped with it.
"""

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing."""


def downgrade() -> None:
    """Change nothing."""
