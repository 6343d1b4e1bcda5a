"""Records in the state table when a recall last wanted an embedder and none answered.

The operator reads the record and starts an embedder that it has scaled to zero. Nothing is recorded on a replica, in a
read-only session, or under a role that may not write. A row that another session has locked is skipped, so that the
statement waits for nobody.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable

DEMAND_SECONDS = 30  # between two records, however many processes recall
_MAY_RECORD = """
SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'
       AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($1)::oid AND attname = 'wanted_at'
                   AND NOT attisdropped AND has_column_privilege(attrelid, attnum, 'UPDATE'))
"""


async def record_demand(connection: AnyConnection, table: MemoryTable) -> None:
    """Set the column `wanted_at` to the present time, unless it was set a moment ago or this session may not write.

    Raises:
        DatabaseUnreachable: the connection failed.
    """
    state = table.own("memory_index_state")
    with translated("recording that an embedder is wanted"):
        if await connection.fetchval(_MAY_RECORD, state):
            await connection.execute(
                f"UPDATE {state} SET wanted_at = now() WHERE singleton IN (SELECT singleton FROM {state} "
                f"WHERE (wanted_at > now() - interval '{DEMAND_SECONDS} s') IS NOT TRUE FOR NO KEY UPDATE SKIP LOCKED)"
            )
