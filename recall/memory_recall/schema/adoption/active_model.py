"""Makes another model the active one of a table that has no vectors, while workers of the former model may run.

The former model's record stays as it is, and the new model gets an id of its own. Every worker names its model's id
when it stores vectors, so a worker of the former model stores nothing after the change, even where both models have the
same name and length.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.embedding.profiles import ModelProfile
from memory_recall.schema.adoption.existing_vectors import some_vector, vectors_indexed
from memory_recall.schema.ddl import TableChanges, literal
from memory_recall.schema.rules.expected import column_model
from memory_recall.schema.table import ACTIVE


async def replace_active_model(changes: TableChanges, former: int, model: ModelProfile) -> None:
    """Make `model` the active model in place of the one with the id `former`, provided that no row has a vector.

    Nothing changes if a row has a vector, if `former` is no longer active, or if a swap is open. All of this happens in
    one transaction, which first waits for writes that are not committed yet and keeps others waiting for a moment. The
    table is scanned before.

    Raises:
        LockNotAvailable: other sessions wrote to the table for all of `changes.lock_seconds`.
    """
    table = changes.table
    if await changes.value(f"SELECT {some_vector(table)}") is True:
        return
    state, models = table.own("memory_index_state"), table.own("memory_index_models")
    chosen = await changes.value(f"SELECT nextval(pg_get_serial_sequence({literal(models)}, 'id'))")
    pooling = "NULL" if model.pooling is None else literal(model.pooling)
    max_tokens = "NULL" if model.max_tokens is None else str(model.max_tokens)
    body = f"""
        BEGIN
            LOCK TABLE {table.qualified} IN SHARE ROW EXCLUSIVE MODE;
            PERFORM set_config('enable_seqscan', 'off', true) FROM {state} FOR UPDATE;
            IF EXISTS (SELECT FROM {state} WHERE active_model = {former} AND next_model IS NULL)
               AND NOT {some_vector(table)} THEN
                INSERT INTO {models}
                    (id, name, dimensions, pooling, max_tokens, query_prefix, document_prefix)
                    OVERRIDING SYSTEM VALUE VALUES
                    ({chosen}, {literal(model.name)}, {model.dimensions}, {pooling}, {max_tokens},
                     {literal(model.query_prefix)}, {literal(model.document_prefix)});
                UPDATE {state} SET active_model = {chosen}, updated_at = now();
                DELETE FROM {table.own(ACTIVE.failures)};
                {"; ".join(column_model(int(str(chosen))).create(table))};
            END IF;
        END"""
    async with vectors_indexed(changes):
        await changes.limit_waiting()
        await changes.run(f"DO LANGUAGE plpgsql {literal(body)}")
