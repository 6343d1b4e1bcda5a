"""Embeds all pending rows with the library of commit 12668a9, which had no command `memory backfill` yet."""

import asyncio
import importlib
import os


async def main() -> None:
    """Read the pending rows page by page, embed them, and write their vectors."""
    modules = ("connection", "halfvec", "pending", "table")
    store = {name: importlib.import_module(f"memory_recall.store.{name}") for name in modules}
    client_of = importlib.import_module("memory_recall.embedder").EmbedderClient
    connection = await store["connection"].connect(store["connection"].DsnText(os.environ["MEMORY_DATABASE_URL"]))
    await store["halfvec"].register(connection, "public")
    table = await store["table"].describe(connection, "memories")
    active = await connection.fetchval("SELECT active_model FROM memory_index_state")
    queue, everything = store["pending"].PendingQueue(table, active), store["pending"].Partition()
    async with client_of(os.environ["MEMORY_EMBEDDER_URL"], os.environ["MEMORY_MODEL"]) as client:
        while rows := await queue.page(connection, 0, everything, 64):
            batch = await client.embed_documents([row.text for row in rows])
            await queue.write(connection, rows, batch.vectors)
    await connection.close()


asyncio.run(main())
