"""What a model swap needs to be remembered by: its own table, where each model is served, and what it could not embed.

The second column itself is no part of any revision, because only a swap knows its dimensions: `memory swap start`
adds it with its rules, `memory swap finish` and `abort` take it away, and so does this revision's downgrade.
"""

from memory_recall.schema.columns import STANDBY
from memory_recall.schema.ddl import literal, steps
from memory_recall.swap.standby_column import COLUMN_MODEL, STANDBY_GUARD, column_model, drop_standby, standby_guard

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

STAGES = ("planned", "filling", "indexing", "gating", "ready", "refused", "flipped", "finished", "aborted")
OPEN = STAGES[:6]


def upgrade() -> None:
    """Add the swaps' table, the models' addresses and the standby column's bookkeeping."""
    with steps() as run:
        table = run.target.table
        models, swaps = table.own("memory_index_models"), table.own("memory_index_swaps")
        run.run(f"ALTER TABLE {models} ADD COLUMN IF NOT EXISTS embedder_url text")
        run.run(
            f"""
            CREATE TABLE IF NOT EXISTS {swaps} (
                id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                stage text NOT NULL CHECK (stage IN ({", ".join(literal(stage) for stage in STAGES)})),
                from_model integer NOT NULL REFERENCES {models},
                to_model integer NOT NULL REFERENCES {models},
                gate jsonb,
                message text NOT NULL DEFAULT '',
                started_at timestamptz NOT NULL DEFAULT now(),
                updated_at timestamptz NOT NULL DEFAULT now(),
                flipped_at timestamptz
            )
            """
        )
        run.run(
            f"CREATE UNIQUE INDEX IF NOT EXISTS memory_index_swaps_one_open ON {swaps} ((true)) "
            f"WHERE stage IN ({', '.join(literal(stage) for stage in OPEN)})"
        )
        run.run(
            f"CREATE TABLE IF NOT EXISTS {table.own(STANDBY.failures)} "
            f"(LIKE {table.own('memory_embedding_failures')} INCLUDING ALL)"
        )
        run.run(standby_guard(table))
        active = run.value(f"SELECT active_model FROM {table.own('memory_index_state')}")
        run.run(column_model(table, int(str(active))))


def downgrade() -> None:
    """Remove it again, with the standby column and its vectors if a swap left one."""
    with steps() as run:
        table = run.target.table
        run.run_together(drop_standby(table))
        run.run(f"DROP FUNCTION IF EXISTS {table.own(STANDBY_GUARD)}()")
        run.run(f"DROP FUNCTION IF EXISTS {table.own(COLUMN_MODEL)}()")
        run.run(f"UPDATE {table.own('memory_index_state')} SET next_model = NULL")
        run.run(f"DROP TABLE IF EXISTS {table.own('memory_index_swaps')}")
        run.run(f"DROP TABLE IF EXISTS {table.own(STANDBY.failures)}")
        run.run(f"ALTER TABLE {table.own('memory_index_models')} DROP COLUMN IF EXISTS embedder_url")
