"""Alembic's entry point: runs the migrations on the connection that `memory migrate` passes in.

Neither this file nor any revision imports the project's code, because the code may change and published revisions may
not. Everything that they need is passed in `context.config.attributes`: the `connection`; the `version_table` and its
`version_schema`; a list `applied`, to which the revisions that were run are added; and `steps`, which runs the SQL
statements of a revision. The statements contain these placeholders:

- `{schema}`, `{table}`: quoted; `{table}` with its schema. `{table_literal}`, `{name_literal}`: as SQL strings.
- `{search_index}`, `{user_index}`, `{updated_index}`: the quoted names of the indexes of a new table of memories.
- `{search_column}`, `{search_literal}`: the name of the search column, quoted and as an SQL string; `{search_added}`:
  whether it is ours and has to be added.
- `{key}`: the type of ids in our own tables. `{column_names}`: SQL literal of the names of the user's columns.
- `{suffix}`: the end of our own objects' names.
- `{vectors}`: the schema of pgvector's types. `{vector_column}`: the name of the active vector column, which needs no
  quotes; `{dimensions}`: its dimensions.
- `{adopted}`, `{discarding}`: whether the embedding column existed before, and whether its vectors are discarded.
- `{model}`, `{pooling}`, `{max_tokens}`, `{query_prefix}`, `{document_prefix}`: SQL literals of the model to record.

The version table has its own name because the memory API keeps an `alembic_version` in the same database. There is no
offline mode, and Alembic opens no connection: every step depends on what is found in the catalog, and the caller's
session holds the lock against other migrations.
"""

from alembic import context


def run() -> None:
    """Run the migrations up to the revision that was passed to Alembic."""
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
