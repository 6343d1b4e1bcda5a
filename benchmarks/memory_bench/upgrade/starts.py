"""The states that a database of a former revision may be in, each made by that commit's own commands.

A start may continue another one; the other's database is then its template.
"""

from dataclasses import dataclass

from memory_bench.upgrade.former import CommandFailed
from memory_bench.upgrade.workshop import Make, Workshop

HNSW = "idx_memories_embedding"


class WrongStart(Exception):  # noqa: N818  (the name is the reason that users read)
    """A former commit's commands did not leave the state that the start is to have."""


@dataclass(frozen=True)
class Start:
    """One state: what makes it from the start `after`, and what `memory` commands go on with it at head.

    `active` is the model of the column `embedding`, `revision` what the version table says.
    """

    name: str
    revision: str
    make: Make
    after: str | None = None
    active: str = "first"
    goes_on: tuple[str, ...] = ()


async def _without_extension(workshop: Workshop, database: str) -> None:
    await workshop.script("12668a9", database, "migrate", "schema", expected=3)
    await workshop.insert(database)


async def _killed_before_the_column(workshop: Workshop, database: str) -> None:
    await workshop.create_extension(database)
    async with workshop.connection(database) as other, other.transaction():
        await other.execute("LOCK TABLE memories IN ACCESS SHARE MODE")  # what ALTER TABLE waits for
        made = "SELECT to_regprocedure('memory_index_guard()') IS NOT NULL"
        migration = await workshop.spawn_script("12668a9", database, "migrate", "schema")
        await workshop.kill(migration, database, made)


async def _killed_in_the_queue_index(workshop: Workshop, database: str) -> None:
    await workshop.create_extension(database)
    await _killed_while_building(workshop, database, "schema", index=f"{HNSW}_pending")


async def _killed_while_building(workshop: Workshop, database: str, goal: str, *, index: str) -> None:
    """Kill a migration whose CREATE INDEX CONCURRENTLY waits for an older snapshot; the index stays invalid."""
    async with workshop.connection(database) as other, other.transaction(isolation="repeatable_read"):
        await other.fetchval("SELECT count(*) FROM pg_class")
        built = "SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass($1) AND indisready)"
        migration = await workshop.spawn_script("12668a9", database, "migrate", goal)
        await workshop.kill(migration, database, built, index)


async def _migrated(commit: str, workshop: Workshop, database: str) -> None:
    await workshop.create_extension(database)
    await workshop.memory(commit, database, "migrate")
    await workshop.insert(database)


async def _schema_0002(workshop: Workshop, database: str) -> None:
    await workshop.create_extension(database)
    await workshop.script("12668a9", database, "migrate", "schema")
    await workshop.insert(database)


async def _vectors_0002(workshop: Workshop, database: str) -> None:
    await workshop.script("12668a9", database, "write_vectors")


async def _index_build_killed(workshop: Workshop, database: str) -> None:
    await _killed_while_building(workshop, database, "head", index=HNSW)


async def _backfilled_by_the_last_operator(workshop: Workshop, database: str) -> None:
    await _migrated("5ed9431", workshop, database)
    await workshop.memory("5ed9431", database, "backfill")


async def _index_0003(workshop: Workshop, database: str) -> None:
    await workshop.script("12668a9", database, "migrate", "head")


async def _index_dropped(workshop: Workshop, database: str) -> None:
    await workshop.execute(database, f"DROP INDEX {HNSW}")


async def _schema_0004(workshop: Workshop, database: str) -> None:
    await _migrated("1bf5068", workshop, database)
    await workshop.memory("1bf5068", database, "index", "build")


async def _vectors_0004(workshop: Workshop, database: str) -> None:
    await workshop.memory("1bf5068", database, "backfill")


async def _swap_0004(workshop: Workshop, database: str) -> None:
    await workshop.script("1bf5068", database, "open_swap", "second", workshop.urls["second"])


async def _schema_0005(workshop: Workshop, database: str) -> None:
    await _migrated("8827371", workshop, database)
    await workshop.memory("8827371", database, "index", "build")


async def _vectors_0005(workshop: Workshop, database: str) -> None:
    await _migrated("8827371", workshop, database)
    await workshop.memory("8827371", database, "backfill")
    await workshop.memory("8827371", database, "index", "build")


async def _swap_ready_0005(workshop: Workshop, database: str) -> None:
    await workshop.memory("8827371", database, *_swap_start(workshop), "--no-flip")


async def _swap_filling_0005(workshop: Workshop, database: str) -> None:
    slowly = {"MEMORY_BACKFILL_ROWS_PER_SECOND": "20"}
    swap = await workshop.spawn("5ed9431", database, *_swap_start(workshop), **slowly)
    # As JSON a column that does not exist yet is NULL.
    filled = "SELECT count(to_jsonb(m) ->> 'embedding_standby') > 30 FROM memories m"
    await workshop.kill(swap, database, filled)


async def _flipped_0005(workshop: Workshop, database: str) -> None:
    await workshop.memory("5ed9431", database, *_swap_start(workshop))


def _swap_start(workshop: Workshop) -> tuple[str, ...]:
    return ("swap", "start", "--model", "second", "--url", workshop.urls["second"], "--without-gate")


_SWAP_GOES_ON = ("swap", "start", "--model", "second", "--url", "{second}", "--without-gate")

STARTS = (
    Start("0001-without-extension", "0001", _without_extension),
    Start("0001-killed-before-column", "0001", _killed_before_the_column, after="0001-without-extension"),
    Start("0001-killed-in-index", "0001", _killed_in_the_queue_index, after="0001-without-extension"),
    Start("0002-pending", "0002", _schema_0002),
    Start("0002-vectors", "0002", _vectors_0002, after="0002-pending"),
    Start("0002-index-build-killed", "0002", _index_build_killed, after="0002-vectors"),
    Start("0002-backfilled-by-5ed9431", "0002", _backfilled_by_the_last_operator),
    Start("0003-pending", "0003", _index_0003, after="0002-pending"),
    Start("0003-vectors", "0003", _index_0003, after="0002-vectors"),
    Start("0003-index-dropped", "0003", _index_dropped, after="0003-vectors"),
    Start("0004-pending", "0004", _schema_0004),
    Start("0004-vectors", "0004", _vectors_0004, after="0004-pending"),
    Start("0004-index-dropped", "0004", _index_dropped, after="0004-vectors"),
    Start("0004-swap-ready", "0004", _swap_0004, after="0004-vectors", goes_on=_SWAP_GOES_ON),
    Start("0005-pending", "0005", _schema_0005),
    Start("0005-vectors", "0005", _vectors_0005),
    Start("0005-index-dropped", "0005", _index_dropped, after="0005-vectors"),
    Start("0005-swap-filling", "0005", _swap_filling_0005, after="0005-vectors", goes_on=_SWAP_GOES_ON),
    Start("0005-swap-ready", "0005", _swap_ready_0005, after="0005-vectors", goes_on=_SWAP_GOES_ON),
    Start(
        "0005-swap-flipped",
        "0005",
        _flipped_0005,
        after="0005-vectors",
        active="second",
        goes_on=("swap", "finish", "--yes"),
    ),
)
BY_NAME = {start.name: start for start in STARTS}


async def make(workshop: Workshop, start: Start) -> None:
    """Make the start's database, which bears its name, and what it continues, unless they are there.

    Raises:
        WrongStart: the version table does not say the revision that the start is of.
    """
    if await workshop.exists(start.name):
        return
    if start.after is not None:
        await make(workshop, BY_NAME[start.after])
    await workshop.create(start.name, template=start.after)
    try:
        await start.make(workshop, start.name)
    except CommandFailed:
        await workshop.drop(start.name)  # or another start would continue half of it
        raise
    async with workshop.connection(start.name) as connection:
        revision = await connection.fetchval("SELECT version_num FROM memory_index_alembic_version")
    if revision != start.revision:
        raise WrongStart(f"{start.name} is at revision {revision}, not {start.revision}.")
