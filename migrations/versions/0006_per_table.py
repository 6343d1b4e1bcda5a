"""What lets several tables of one schema be indexed: the state says by OID which table it is of.

From here on each table's revision is kept in a version table of its own. `memory_index_alembic_version` keeps the row
0005 for the table that owns the plain names: programs of before compare with it, and would refuse a later one.
"""

from alembic import context

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table's OID, which the rules' check compares, and leave the row for programs of before."""
    with context.config.attributes["steps"]() as steps:
        steps.run('ALTER TABLE {schema}."memory_index_state{suffix}" ADD COLUMN IF NOT EXISTS table_oid regclass')
        if steps.names["suffix"]:
            return
        steps.run(
            "CREATE TABLE IF NOT EXISTS {schema}.memory_index_alembic_version (version_num varchar(32) NOT NULL, "
            "CONSTRAINT memory_index_alembic_version_pkc PRIMARY KEY (version_num))"
        )
        steps.run_together(
            [
                "DELETE FROM {schema}.memory_index_alembic_version",
                "INSERT INTO {schema}.memory_index_alembic_version VALUES ('0005')",
            ]
        )


def downgrade() -> None:
    """Remove the table's OID; the runner drops version tables."""
    with context.config.attributes["steps"]() as steps:
        steps.run('ALTER TABLE {schema}."memory_index_state{suffix}" DROP COLUMN IF EXISTS table_oid')
