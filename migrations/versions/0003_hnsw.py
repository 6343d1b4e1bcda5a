"""The HNSW index, built after the first backfill because a bulk build is far cheaper than inserts row by row."""

from memory_recall.hnsw.definition import find_statement, hnsw_definition, hnsw_name
from memory_recall.schema.ddl import steps

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Build the index CONCURRENTLY unless a valid one serves the column already."""
    with steps() as run:
        table = run.target.table
        if run.value(find_statement(table)) is None:
            definition = hnsw_definition(table, run.target.index_m, run.target.index_ef_construction)
            run.build_index(hnsw_name(table), definition)


def downgrade() -> None:
    """Drop our index; one that the API made under its own name stays."""
    with steps() as run:
        run.drop_index(hnsw_name(run.target.table))
