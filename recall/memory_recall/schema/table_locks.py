"""How long a change of the shared table may wait, and for whom.

A statement that waits for the whole table makes all later ones wait behind it, so it gives up soon, lets them pass and
tries again. Behind a vacuum that would be in vain: one of a large vector index runs for minutes. So vacuums are waited
for by a lock that conflicts with them but neither with readers nor with writers; and Postgres ends an autovacuum that
somebody has waited for longer than `deadlock_timeout`.
"""

from memory_recall.schema.table import MemoryTable

LOCK_TIMEOUT_MS = 100  # nobody waits longer behind a change of the table
MAINTENANCE_TIMEOUT_MS = 5000  # over deadlock_timeout, which is a second unless somebody has changed it


def wait_for_maintenance(table: MemoryTable) -> list[str]:
    """Waits until no vacuum or index build works on the table, and lets none begin before the transaction ends."""
    return [
        f"SET LOCAL lock_timeout = {MAINTENANCE_TIMEOUT_MS}",
        f"LOCK TABLE {table.qualified} IN SHARE UPDATE EXCLUSIVE MODE",
        f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}",
    ]
