"""Alembic's entry: runs the migrations on the connection that `memory migrate` hands over.

Neither this file nor any revision imports our code, which may change while they stay. What they need comes through
`context.config.attributes`: the `connection`, the `version_table` and its `version_schema`, a list `applied` that takes
the revisions that were run, and `steps`, which gives a revision the means to run its statements. Their placeholders:

- `{schema}`, `{table}`: quoted; `{table}` with its schema. `{table_literal}`, `{name_literal}`: as strings of SQL.
- `{name}`: the table's bare name, for use within double quotes. `{suffix}`: what our own names end in.
- `{vectors}`: the schema of pgvector's types. `{dimensions}`: of the embedding column.
- `{sensitive}`: follows `is_sensitive` and makes it true where a row is sensitive, by the column's type.
- `{adopted}`, `{discarding}`: whether the column was there before, and whether its vectors are to go.
- `{model}`, `{pooling}`, `{max_tokens}`, `{query_prefix}`, `{document_prefix}`: literals, of the model to record.

The version table has its own name because the memory API keeps an `alembic_version` in the same database. There is no
offline mode and no connection of Alembic's own: every step depends on what is found in the catalog, and the caller's
session holds the lock that keeps other migrators out.
"""

from alembic import context


def run() -> None:
    """Run the migrations up to the revision that the caller of Alembic named."""
    given = context.config.attributes
    if "connection" not in given:
        msg = "Run these migrations with `memory migrate`; plain `alembic` has neither the lock nor the table's shape."
        raise RuntimeError(msg)
    context.configure(
        connection=given["connection"],
        version_table=given["version_table"],
        version_table_schema=given["version_schema"],
        transaction_per_migration=True,
        on_version_apply=lambda *, step, **_: given["applied"].append(step.up_revision_id),
    )
    with context.begin_transaction():
        context.run_migrations()


run()
