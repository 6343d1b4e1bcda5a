"""Does nothing: this revision once built the HNSW index, which is now built and repaired outside the migrations.

It stays because the version tables of existing databases refer to it.
"""

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing."""
