"""Alembic's entry: runs the migrations on the connection that `memory migrate` hands over.

The version table has its own name because the memory API keeps an `alembic_version` in the same database. There is no
offline mode and no connection of Alembic's own: every step depends on what is found in the catalog, and the caller's
session holds the lock that keeps other migrators out.
"""

from alembic import context

from memory_recall.schema.ddl import MigrationTarget

VERSION_TABLE = "memory_index_alembic_version"


def run() -> None:
    """Run what the caller asked for."""
    target = context.config.attributes.get("target")
    connection = context.config.attributes.get("connection")
    if not isinstance(target, MigrationTarget) or connection is None:
        msg = "Run these migrations with `memory migrate`; plain `alembic` has neither the lock nor the table's shape."
        raise RuntimeError(msg)
    context.configure(
        connection=connection,
        version_table=VERSION_TABLE,
        version_table_schema=target.table.schema,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
