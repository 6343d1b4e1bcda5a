"""Records the OID of the indexed table in its state, so that several tables of one schema can be indexed.

From this revision on, each table has a version table of its own. The version table of earlier releases,
`memory_index_alembic_version`, stays at 0005, because the operators of those releases refuse to work with a later
revision.
"""

from alembic import context

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column for the table's OID, and set the version table of earlier releases to 0005."""
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
