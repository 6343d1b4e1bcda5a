"""Connects as the roles that `memory roles` describes; the script itself is the command's own output."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import asyncpg

from tests.integration.conftest import Database
from tests.integration.memory_recall.workbench import Workbench
from tests.support.memory_command import run_memory

PASSWORD = "role-password"


@dataclass(frozen=True)
class LeastRights:
    """The database as each of the two roles reaches it."""

    worker: Database
    reader: Database


async def printed(bench: Workbench, *arguments: str) -> str:
    ended = await run_memory(["roles", *arguments], bench.environment())
    assert ended.status == 0, ended.errors.decode()
    return ended.output.decode()


@contextlib.asynccontextmanager
async def least_rights(bench: Workbench) -> AsyncIterator[LeastRights]:
    """Run the script as a superuser, give both roles a password, and drop them at the end."""
    database = bench.database
    names = {kind: f"{database.name}_{kind}" for kind in ("worker", "reader")}
    script = await printed(bench, "--worker", names["worker"], "--recall", names["reader"])
    admin = await asyncpg.connect(database.superuser_dsn)
    try:
        await admin.execute(script)
        await admin.execute(script)  # it may be run again
        for name in names.values():
            await admin.execute(f"ALTER ROLE {name} PASSWORD '{PASSWORD}'")
        address = database.dsn.rpartition("@")[2]
        yield LeastRights(
            *(replace(database, dsn=f"postgresql://{name}:{PASSWORD}@{address}") for name in names.values())
        )
    finally:
        for name in names.values():
            await admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
        await admin.close()
