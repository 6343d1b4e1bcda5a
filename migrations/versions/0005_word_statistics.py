"""Has ANALYZE learn of more words how many rows hold them: BM25's leg reads the rows of the rarest words of a question.

By default Postgres keeps the shares of a thousand lexemes. The thousandth of a million rows' is held by five thousand
of them, so which of a question's words is the rarest would mostly be unknown.
"""

from memory_recall.schema.ddl import literal, steps

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

COLUMN = "search_vector"
TARGET = 300  # ten lexemes each; ANALYZE then reads 90,000 rows, and a recall reads 3,000 words instead of 1,000
_DEFAULT = -1


def upgrade() -> None:
    """Raise the column's statistics target and look at the rows, unless somebody has set a target already."""
    with steps() as run:
        table = run.target.table.qualified
        if run.value(_target(table)) in {_DEFAULT, TARGET}:  # ours: killed before it had looked at the rows
            run.run(f"ALTER TABLE {table} ALTER COLUMN {COLUMN} SET STATISTICS {TARGET}")
            run.run(f"ANALYZE {table} ({COLUMN})")


def downgrade() -> None:
    """Set our target back; another one is somebody's own."""
    with steps() as run:
        table = run.target.table.qualified
        if run.value(_target(table)) == TARGET:
            run.run(f"ALTER TABLE {table} ALTER COLUMN {COLUMN} SET STATISTICS {_DEFAULT}")


def _target(table: str) -> str:
    return (
        f"SELECT coalesce(attstattarget, {_DEFAULT}) FROM pg_attribute WHERE attrelid = {literal(table)}::regclass "
        f"AND attname = '{COLUMN}' AND atttypid = 'tsvector'::regtype AND NOT attisdropped"
    )
