"""The vector index gets what the server allows, is exchanged for other parameters, and repaired when it misses."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

import asyncpg
import pytest

from memory_recall.errors import LockNotAvailable
from memory_recall.hnsw.build import merge_pending_entries, read_resources
from memory_recall.hnsw.definition import IndexFacts, inspect_index
from memory_recall.hnsw.repair import IndexParameters, build_index, check_and_repair
from memory_recall.hnsw.search_effort import SearchedGraph
from memory_recall.indexing.companions.index_check import IndexChecker
from memory_recall.indexing.progress import WorkerMetrics
from memory_recall.postgres.connection import Connection, DsnText, opened
from memory_recall.schema.migrate import MigrationRequest
from memory_recall.schema.revisions import require_schema
from memory_recall.search.sql.readiness import read_readiness
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.conftest import fill_with_vectors
from tests.integration.memory_recall.workbench import migrate_and_index, until

Requests = Callable[..., MigrationRequest]
PARAMETERS = IndexParameters()
ALWAYS = 1.01  # no recall is that high


@pytest.fixture
async def database(copy_of: CopyOf, request_for: Requests) -> Database:
    """The database of `filled`."""
    return await copy_of("800 rows with vectors", partial(fill_with_vectors, request=request_for()))


@pytest.fixture
async def filled(database: Database) -> AsyncIterator[Connection]:
    """800 rows with vectors, without the index."""
    async with opened(DsnText(database.dsn), "testing") as connection:
        yield connection


@pytest.fixture
async def indexed_database(copy_of: CopyOf, request_for: Requests) -> Database:
    """The database of `indexed`."""

    async def fill(empty: Database) -> None:
        await fill_with_vectors(empty, request_for())
        await build_index(DsnText(empty.dsn), "memories", PARAMETERS)

    return await copy_of("800 rows with vectors and their index", fill)


@pytest.fixture
async def indexed(indexed_database: Database) -> AsyncIterator[Connection]:
    """The same rows with the index."""
    async with opened(DsnText(indexed_database.dsn), "testing") as connection:
        yield connection


async def facts(connection: Connection) -> IndexFacts:
    return await inspect_index(connection, await require_schema(connection, "memories"))


async def identity(connection: Connection, name: str = "idx_memories_embedding") -> object:
    """What changes when an index is built anew."""
    return await connection.fetchval("SELECT (oid, relfilenode)::text FROM pg_class WHERE relname = $1", name)


async def hnsw_indexes(connection: Connection) -> list[str]:
    rows = await connection.fetch(
        "SELECT c.relname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'hnsw' ORDER BY 1"
    )
    return [row["relname"] for row in rows]


async def test_an_index_is_rebuilt_only_if_its_parameters_differ(
    indexed: Connection, indexed_database: Database, request_for: Requests
) -> None:
    source = DsnText(indexed_database.dsn)
    built = await identity(indexed)
    assert ((await facts(indexed)).m, (await facts(indexed)).ef_construction) == (24, 128)
    await migrate_and_index(source, request_for())
    assert await identity(indexed) == built, "nothing had changed"
    await migrate_and_index(source, request_for(), IndexParameters(8, 40))
    found = await facts(indexed)
    assert (found.valid, found.m, found.ef_construction) == (True, 8, 40)
    assert await hnsw_indexes(indexed) == ["idx_memories_embedding"]


async def test_dense_recall_uses_the_old_index_until_the_new_one_is_complete(
    indexed: Connection, indexed_database: Database, request_for: Requests
) -> None:
    """A transaction that holds the table keeps the exchange from happening; the old index is valid all the while."""
    source = DsnText(indexed_database.dsn)
    old = await identity(indexed)
    async with indexed_database.connection() as reader:
        transaction = reader.transaction()
        rebuild = None
        try:
            await transaction.start()
            await reader.fetch("SELECT id FROM memories LIMIT 1")
            rebuild = asyncio.create_task(migrate_and_index(source, request_for(), IndexParameters(8)))
            async with asyncio.timeout(60):
                while len(await hnsw_indexes(indexed)) < 2:  # noqa: ASYNC110  (Postgres makes it)
                    await asyncio.sleep(0.02)
            assert await identity(indexed) == old
            assert (await facts(indexed)).valid
        finally:
            await transaction.rollback()
            if rebuild:
                await rebuild
    assert (await facts(indexed)).m == 8


async def test_a_finished_rebuild_that_found_the_table_in_use_is_not_built_again(
    indexed: Connection, indexed_database: Database
) -> None:
    source, wanted = DsnText(indexed_database.dsn), IndexParameters(8)
    async with indexed_database.connection() as reader, reader.transaction(isolation="read_committed"):
        await reader.execute("SELECT id FROM memories LIMIT 1")
        with pytest.raises(LockNotAvailable):
            await build_index(source, "memories", wanted, lock_seconds=1)
    rebuilt = await identity(indexed, "idx_memories_embedding_rebuilt")
    assert (await facts(indexed)).m == PARAMETERS.m
    assert (await build_index(source, "memories", wanted)).m == 8
    assert await identity(indexed) == rebuilt
    assert await hnsw_indexes(indexed) == ["idx_memories_embedding"]


async def test_a_finished_rebuild_of_other_parameters_than_those_wanted_now_is_dropped(
    indexed: Connection, indexed_database: Database
) -> None:
    await indexed.execute(
        "CREATE INDEX idx_memories_embedding_rebuilt ON memories USING hnsw (embedding halfvec_cosine_ops) "
        "WITH (m = 8, ef_construction = 100)"
    )
    found = await build_index(DsnText(indexed_database.dsn), "memories", IndexParameters(8, 40))
    assert (found.m, found.ef_construction, await hnsw_indexes(indexed)) == (8, 40, ["idx_memories_embedding"])


async def test_an_index_left_by_an_interrupted_rebuild_is_removed(
    indexed: Connection, indexed_database: Database, request_for: Requests
) -> None:
    source = DsnText(indexed_database.dsn)
    await indexed.execute(
        "CREATE INDEX idx_memories_embedding_rebuilt ON memories USING hnsw (embedding halfvec_cosine_ops)"
    )
    await migrate_and_index(source, request_for())
    assert await hnsw_indexes(indexed) == ["idx_memories_embedding"]


async def test_an_index_under_a_name_of_the_apis_own_is_used_as_it_is(
    filled: Connection, database: Database, request_for: Requests
) -> None:
    await filled.execute("CREATE INDEX theirs ON memories USING hnsw (embedding halfvec_cosine_ops) WITH (m = 4)")
    built = await identity(filled, "theirs")
    await migrate_and_index(DsnText(database.dsn), request_for(), IndexParameters(8))
    assert await hnsw_indexes(filled) == ["theirs"]
    assert await identity(filled, "theirs") == built
    found = await facts(filled)
    assert (found.ours, found.m, found.differs(8, 64)) == (False, 4, False)


async def test_a_build_leaves_no_dead_rows_and_no_pending_gin_entries(
    filled: Connection, database: Database, request_for: Requests
) -> None:
    await filled.execute("UPDATE memories SET importance = 0.9")
    await migrate_and_index(DsnText(database.dsn), request_for())
    table = await require_schema(filled, "memories")
    assert await merge_pending_entries(filled, table) == 0
    visible, pages, known = await filled.fetchrow(
        "SELECT relallvisible, relpages, reltuples FROM pg_class WHERE relname = 'memories'"
    )
    assert visible > 0
    assert pages > 0
    assert known == 800


async def test_pending_gin_entries_are_merged_by_the_next_build(
    indexed: Connection, indexed_database: Database, request_for: Requests
) -> None:
    source = DsnText(indexed_database.dsn)
    await indexed.execute("INSERT INTO memories (content) SELECT 'another text ' || n FROM generate_series(1, 400) n")
    await migrate_and_index(source, request_for())
    assert await merge_pending_entries(indexed, await require_schema(indexed, "memories")) == 0


async def test_a_machine_with_less_memory_than_its_settings_allow_gets_a_serial_build(
    filled: Connection, database: Database, request_for: Requests
) -> None:
    """As where a container's shared memory is too small: Postgres says 53100 once parallel workers are asked for."""
    admin = await asyncpg.connect(database.superuser_dsn)
    await admin.execute(
        "CREATE FUNCTION small() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF current_query() LIKE '%USING hnsw%' AND current_setting('max_parallel_maintenance_workers') <> '0' THEN "
        "RAISE EXCEPTION 'could not resize shared memory segment' USING ERRCODE = '53100'; END IF; END $$"
    )
    await admin.execute("CREATE EVENT TRIGGER small ON ddl_command_start EXECUTE FUNCTION small()")
    await admin.close()
    source = DsnText(database.dsn)
    await migrate_and_index(source, request_for())
    assert (await facts(filled)).valid
    await migrate_and_index(source, request_for(), IndexParameters(8))
    assert (await facts(filled)).m == 8


async def test_the_settings_of_the_server_are_read_in_kib(filled: Connection) -> None:
    found = await read_resources(filled)
    assert (found.shared_buffers, found.maintenance_work_mem) == (64 * 1024, 64 * 1024)
    assert found.maintenance_workers >= 1


async def test_an_index_below_the_threshold_is_built_anew_and_measured_again(indexed: Connection) -> None:
    table = await require_schema(indexed, "memories")
    before = await identity(indexed)
    healthy = await check_and_repair(indexed, table, PARAMETERS, sample=20, repair_below=0.0)
    assert await identity(indexed) == before
    assert (healthy.recall_after_repair, healthy.recall is not None) == (None, True)
    repaired = await check_and_repair(indexed, table, PARAMETERS, sample=20, repair_below=ALWAYS)
    assert await identity(indexed) != before
    assert repaired.facts.valid
    assert repaired.recall_after_repair is not None
    assert await hnsw_indexes(indexed) == ["idx_memories_embedding"]


async def test_an_index_that_misses_neighbours_is_repaired(indexed: Connection, indexed_database: Database) -> None:
    """Half of the rows get a new version that the index does not receive."""
    admin = await asyncpg.connect(indexed_database.superuser_dsn)
    await admin.execute("UPDATE pg_index SET indisready = false WHERE indexrelid = 'idx_memories_embedding'::regclass")
    await admin.execute("UPDATE memories SET importance = 0.1 WHERE id % 2 = 0")  # new versions, which it does not get
    await admin.execute("UPDATE pg_index SET indisready = true WHERE indexrelid = 'idx_memories_embedding'::regclass")
    await admin.close()
    table = await require_schema(indexed, "memories")
    found = await check_and_repair(indexed, table, PARAMETERS, sample=40, repair_below=0.9)
    assert found.recall is not None
    assert found.recall < 0.9
    assert found.recall_after_repair is not None
    assert found.recall_after_repair > found.recall


async def test_a_second_repair_at_the_same_time_is_refused(indexed: Connection, indexed_database: Database) -> None:
    table = await require_schema(indexed, "memories")
    async with indexed_database.connection() as other:
        await other.execute("SELECT pg_advisory_lock($1)", 0x6D656D6F_72796963)
        with pytest.raises(LockNotAvailable, match="repairs"):
            await check_and_repair(indexed, table, PARAMETERS, sample=5, repair_below=ALWAYS)


async def test_memories_of_the_same_text_do_not_count_as_missed(
    database: Database, filled: Connection, request_for: Requests
) -> None:
    await filled.execute("UPDATE memories SET embedding = '[1,2,3,4,5,6,7,8]'")
    await migrate_and_index(DsnText(database.dsn), request_for())
    table = await require_schema(filled, "memories")
    assert (await check_and_repair(filled, table, PARAMETERS, sample=20, repair_below=None)).recall == 1.0


async def test_the_index_check_of_the_sync_worker_repairs_the_index_and_reports_its_recall(
    indexed: Connection, indexed_database: Database
) -> None:
    before, metrics = await identity(indexed), WorkerMetrics()
    checker = IndexChecker(PARAMETERS, ALWAYS, 3600, first_seconds=0)
    stop = asyncio.Event()
    task = asyncio.create_task(checker.run(DsnText(indexed_database.dsn), "memories", metrics, stop))
    await until(lambda: checker.threshold < ALWAYS)  # lowered when a repair has ended
    stop.set()
    await task
    assert await identity(indexed) != before
    assert metrics.registry.get_sample_value("memory_worker_index_recall") > 0
    assert checker.threshold <= 1.0 - 0.02, "what the rebuild achieved is what the index is measured by from now on"


@pytest.mark.parametrize(
    ("ours", "definition", "searched"),
    [(True, "", (24, 128)), (False, "WITH (m = 4)", (4, 64)), (False, "", (16, 64))],
)
async def test_a_recall_reads_the_parameters_of_the_index_that_it_searches(
    filled: Connection,
    database: Database,
    request_for: Requests,
    *,
    ours: bool,
    definition: str,
    searched: tuple[int, int],
) -> None:
    """A sparser graph, such as one that the API made, must be searched deeper for as many of the true neighbours."""
    if not ours:
        await filled.execute(f"CREATE INDEX theirs ON memories USING hnsw (embedding halfvec_cosine_ops) {definition}")
    await migrate_and_index(DsnText(database.dsn), request_for())
    await filled.execute("ANALYZE memories")
    assert (await read_readiness(filled, "memories")).hnsw == SearchedGraph(800, *searched)
