"""Runs a model swap until just before its flip, with commit 1bf5068, which had no command `memory swap` yet.

Usage: python open_swap.py MODEL URL
"""

import asyncio
import importlib
import sys


async def main(model: str, url: str) -> None:
    """Fill and index the standby column, and leave the swap at the stage `ready`."""
    embedder_of = importlib.import_module("memory_recall.embedder").EmbedderClient
    process = importlib.import_module("memory_recall.swap.process")
    state = importlib.import_module("memory_recall.store.swap_state")
    index = importlib.import_module("memory_recall.store.swap_facts").IndexBuild()
    plan_of = vars(importlib.import_module("memory_recall.cli.workers"))["_plan"]
    progress = importlib.import_module("memory_recall.workers.progress").LogProgress
    metrics = importlib.import_module("memory_recall.workers.metrics").WorkerMetrics
    directory_of = importlib.import_module("memory_recall.workers.directory").EmbedderDirectory
    settings = importlib.import_module("memory_recall.settings").Settings()
    async with embedder_of(url, model) as client, directory_of(client, embedder_of) as directory:
        info = await client.model_info()
        target = state.NextModel(info.name, info.dimensions, info.digest, None, None, "", "", url)
        order = process.SwapOrder(target, plan_of(settings, partitioned=False), index, flip=False)
        swap = process.SwapProcess(
            settings.dsn(),
            directory,
            order,
            measure=None,
            progress=progress(metrics(), worker="swap"),
            stop=asyncio.Event(),
        )
        record = await swap.run()
    if record.stage != "ready":
        sys.exit(f"The swap is {record.stage}, not ready.")


asyncio.run(main(*sys.argv[1:]))
