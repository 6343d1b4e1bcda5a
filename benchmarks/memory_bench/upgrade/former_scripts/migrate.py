"""Migrates a database with the library of commit 12668a9, which had no command `memory migrate` yet.

Usage: python migrate.py schema|head
"""

import asyncio
import importlib
import os
import sys


async def main(goal: str) -> None:
    """Migrate the database to the last revision before the vector index, or to head, which includes the index."""
    settings = importlib.import_module("memory_recall.settings").Settings()
    runner = importlib.import_module("memory_recall.store.migrate")
    model = importlib.import_module("memory_recall.store.ddl").TargetModel(
        os.environ["MEMORY_MODEL"], int(os.environ["MEMORY_DIMENSIONS"]), None, None, "", ""
    )
    missing = importlib.import_module("memory_recall.errors").ExtensionMissing
    try:
        await runner.migrate(
            settings.dsn(), runner.MigrationRequest("memories", model, settings.migrations_dir), to=goal
        )
    except missing:
        sys.exit(3)


asyncio.run(main(sys.argv[1]))
