"""Keeps Postgres from compiling a recall statement.

Where Postgres was built with LLVM it compiles what it estimates to be long (`jit_above_cost`), by default. That is true
of a recall of more than some 300,000 rows, and takes 290 ms where running it takes 40 to 90. Whether to compile is
decided before a statement runs, so that ours cannot turn it off for itself, as it sets what the index scan needs.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memory_recall.postgres.connection import AnyConnection


@asynccontextmanager
async def uncompiled(connection: AnyConnection, *, compiles: bool) -> AsyncIterator[None]:
    """Run what is inside without compiling; by a transaction of its own, so that it holds behind a pooler, too.

    Where nothing would be compiled anyway this does nothing, and spares three round trips.
    """
    if not compiles:
        yield
        return
    async with connection.transaction(readonly=True):
        await connection.execute("SET LOCAL jit = off")
        yield
