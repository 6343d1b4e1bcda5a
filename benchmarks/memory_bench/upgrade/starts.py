"""Makes databases in every state that a former revision may have left, with the commands of the former commit.

A starting state may continue another starting state, whose database is then copied first.
"""

from dataclasses import dataclass

from memory_bench.upgrade.workshop import Make, UpgradeEnvironment
from tests.support.recalling.loop import CommandFailed

HNSW = "idx_memories_embedding"


class WrongStartingState(Exception):  # noqa: N818  (the name is the reason that users read)
    """The commands of a former commit left the database at a revision that is not the starting state's."""


@dataclass(frozen=True)
class StartingState:
    """A state of a database from which an upgrade begins.

    `make` brings a database to this state. It begins with a copy of the database of the starting state `after`, or with
    an empty database if `after` is None. `revision` is the schema revision of the state, and `active` the model of the
    column `embedding`. `commands_at_head` are the arguments of a `memory` command that must succeed after the upgrade,
    such as the rest of a swap; it is empty if there is none.
    """

    name: str
    revision: str
    make: Make
    after: str | None = None
    active: str = "first"
    commands_at_head: tuple[str, ...] = ()


async def _without_extension(environment: UpgradeEnvironment, database: str) -> None:
    await environment.script("12668a9", database, "migrate", "schema", expected=3)
    await environment.insert(database)


async def _killed_before_the_column(environment: UpgradeEnvironment, database: str) -> None:
    await environment.create_extension(database)
    async with environment.connection(database) as other, other.transaction():
        await other.execute("LOCK TABLE memories IN ACCESS SHARE MODE")  # what ALTER TABLE waits for
        made = "SELECT to_regprocedure('memory_index_guard()') IS NOT NULL"
        migration = await environment.spawn_script("12668a9", database, "migrate", "schema")
        await environment.kill(migration, database, made)


async def _killed_in_the_queue_index(environment: UpgradeEnvironment, database: str) -> None:
    await environment.create_extension(database)
    await _killed_while_building(environment, database, "schema", index=f"{HNSW}_pending")


async def _killed_while_building(environment: UpgradeEnvironment, database: str, goal: str, *, index: str) -> None:
    """Kill a migration while its CREATE INDEX CONCURRENTLY waits for an older snapshot; the index stays invalid."""
    async with environment.connection(database) as other, other.transaction(isolation="repeatable_read"):
        await other.fetchval("SELECT count(*) FROM pg_class")
        built = "SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass($1) AND indisready)"
        migration = await environment.spawn_script("12668a9", database, "migrate", goal)
        await environment.kill(migration, database, built, index)


async def _migrated(commit: str, environment: UpgradeEnvironment, database: str) -> None:
    await environment.create_extension(database)
    await environment.memory(commit, database, "migrate")
    await environment.insert(database)


async def _schema_0002(environment: UpgradeEnvironment, database: str) -> None:
    await environment.create_extension(database)
    await environment.script("12668a9", database, "migrate", "schema")
    await environment.insert(database)


async def _vectors_0002(environment: UpgradeEnvironment, database: str) -> None:
    await environment.script("12668a9", database, "write_vectors")


async def _index_build_killed(environment: UpgradeEnvironment, database: str) -> None:
    await _killed_while_building(environment, database, "head", index=HNSW)


async def _backfilled_by_the_last_operator(environment: UpgradeEnvironment, database: str) -> None:
    await _migrated("5ed9431", environment, database)
    await environment.memory("5ed9431", database, "backfill")


async def _index_0003(environment: UpgradeEnvironment, database: str) -> None:
    await environment.script("12668a9", database, "migrate", "head")


async def _index_dropped(environment: UpgradeEnvironment, database: str) -> None:
    await environment.execute(database, f"DROP INDEX {HNSW}")


async def _schema_0004(environment: UpgradeEnvironment, database: str) -> None:
    await _migrated("1bf5068", environment, database)
    await environment.memory("1bf5068", database, "index", "build")


async def _vectors_0004(environment: UpgradeEnvironment, database: str) -> None:
    await environment.memory("1bf5068", database, "backfill")


async def _swap_0004(environment: UpgradeEnvironment, database: str) -> None:
    await environment.script("1bf5068", database, "open_swap", "second", environment.urls["second"])


async def _schema_0005(environment: UpgradeEnvironment, database: str) -> None:
    await _migrated("8827371", environment, database)
    await environment.memory("8827371", database, "index", "build")


async def _vectors_0005(environment: UpgradeEnvironment, database: str) -> None:
    await _migrated("8827371", environment, database)
    await environment.memory("8827371", database, "backfill")
    await environment.memory("8827371", database, "index", "build")


async def _swap_ready_0005(environment: UpgradeEnvironment, database: str) -> None:
    await environment.memory("8827371", database, *_swap_start(environment), "--no-flip")


async def _swap_filling_0005(environment: UpgradeEnvironment, database: str) -> None:
    slowly = {"MEMORY_BACKFILL_ROWS_PER_SECOND": "20"}
    swap = await environment.spawn("5ed9431", database, *_swap_start(environment), **slowly)
    # As JSON a column that does not exist yet is NULL.
    filled = "SELECT count(to_jsonb(m) ->> 'embedding_standby') > 30 FROM memories m"
    await environment.kill(swap, database, filled)


async def _flipped_0005(environment: UpgradeEnvironment, database: str) -> None:
    await environment.memory("5ed9431", database, *_swap_start(environment))


def _swap_start(environment: UpgradeEnvironment) -> tuple[str, ...]:
    return ("swap", "start", "--model", "second", "--url", environment.urls["second"], "--without-gate")


_SWAP_AT_HEAD = ("swap", "start", "--model", "second", "--url", "{second}", "--without-gate")

STARTING_STATES = (
    StartingState("0001-without-extension", "0001", _without_extension),
    StartingState("0001-killed-before-column", "0001", _killed_before_the_column, after="0001-without-extension"),
    StartingState("0001-killed-in-index", "0001", _killed_in_the_queue_index, after="0001-without-extension"),
    StartingState("0002-pending", "0002", _schema_0002),
    StartingState("0002-vectors", "0002", _vectors_0002, after="0002-pending"),
    StartingState("0002-index-build-killed", "0002", _index_build_killed, after="0002-vectors"),
    StartingState("0002-backfilled-by-5ed9431", "0002", _backfilled_by_the_last_operator),
    StartingState("0003-pending", "0003", _index_0003, after="0002-pending"),
    StartingState("0003-vectors", "0003", _index_0003, after="0002-vectors"),
    StartingState("0003-index-dropped", "0003", _index_dropped, after="0003-vectors"),
    StartingState("0004-pending", "0004", _schema_0004),
    StartingState("0004-vectors", "0004", _vectors_0004, after="0004-pending"),
    StartingState("0004-index-dropped", "0004", _index_dropped, after="0004-vectors"),
    StartingState("0004-swap-ready", "0004", _swap_0004, after="0004-vectors", commands_at_head=_SWAP_AT_HEAD),
    StartingState("0005-pending", "0005", _schema_0005),
    StartingState("0005-vectors", "0005", _vectors_0005),
    StartingState("0005-index-dropped", "0005", _index_dropped, after="0005-vectors"),
    StartingState(
        "0005-swap-filling", "0005", _swap_filling_0005, after="0005-vectors", commands_at_head=_SWAP_AT_HEAD
    ),
    StartingState("0005-swap-ready", "0005", _swap_ready_0005, after="0005-vectors", commands_at_head=_SWAP_AT_HEAD),
    StartingState(
        "0005-swap-flipped",
        "0005",
        _flipped_0005,
        after="0005-vectors",
        active="second",
        commands_at_head=("swap", "finish", "--yes"),
    ),
)
BY_NAME = {start.name: start for start in STARTING_STATES}


async def make(environment: UpgradeEnvironment, start: StartingState) -> None:
    """Make the database of a starting state, named after the state, unless the database exists.

    If the starting state continues another state, that state's database is made first.

    Raises:
        WrongStartingState: the database is not at the revision of the starting state.
    """
    if await environment.exists(start.name):
        return
    if start.after is not None:
        await make(environment, BY_NAME[start.after])
    await environment.create(start.name, template=start.after)
    try:
        await start.make(environment, start.name)
    except CommandFailed:
        await environment.drop(start.name)  # or another start would continue half of it
        raise
    async with environment.connection(start.name) as connection:
        revision = await connection.fetchval("SELECT version_num FROM memory_index_alembic_version")
    if revision != start.revision:
        raise WrongStartingState(f"{start.name} is at revision {revision}, not {start.revision}.")
