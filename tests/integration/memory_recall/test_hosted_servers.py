"""With the rights that hosted servers and other operators of Postgres give, everything works, and only where it should.

The servers are set up with roles and rights as docs/postgres.md has them; the providers themselves were not reached.
"""

from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest

from memory_operator.clients.database import DatabaseClient
from memory_operator.reconcile.authorization.identity import check_identity
from memory_recall.errors import DatabaseIdentityMismatch, DatabaseRejected
from memory_recall.hnsw.repair import build_index
from memory_recall.postgres.connection import DsnText, create_pool, opened
from memory_recall.postgres.identity_sql import DatabaseIdentity, read_identity
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.status import DatabaseFacts
from tests.integration.conftest import Database
from tests.integration.memory_recall.fake_embedder import FakeEmbedder
from tests.integration.memory_recall.hosted_servers import MARK, PROVIDERS, hosted
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.test_poolers import Exact
from tests.integration.memory_recall.workbench import DIMENSIONS, INDEX, Workbench
from tests.unit.memory_operator.conftest import World, anywhere

Requests = Callable[..., MigrationRequest]
TEXTS = ("scrub the zfs pool", "the kettle is blue")


@pytest.fixture
async def embedder() -> AsyncIterator[FakeEmbedder]:
    async with FakeEmbedder(dimensions=DIMENSIONS) as serving:
        yield serving


async def facts(database: Database) -> DatabaseFacts:
    """What the operator sees."""
    found = (await DatabaseClient(anywhere).inspect(DsnText(database.dsn), "memories", "team")).found
    assert isinstance(found, DatabaseFacts), found
    return found


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_role_without_superuser_migrates_backfills_and_recalls(
    bare_database: Database, request_for: Requests, embedder: FakeEmbedder, name: str
) -> None:
    """Each step connects only to the server that the operator has identified first."""
    index = World().index(database={"name": bare_database.name, "cluster": None})
    new = index.model_copy(update={"system_identifier": "", "status": {}})
    async with hosted(bare_database, PROVIDERS[name]) as database:
        seen = await facts(database)
        assert check_identity(new, None, seen) is None
        assert (seen.system_identifier == f"marked-{MARK}") is not PROVIDERS[name].tells
        source = DsnText(database.dsn, DatabaseIdentity.parse(str(seen.identity)))
        await migrate(source, request_for())
        bench = Workbench(database, embedder)
        await bench.insert(*TEXTS)
        assert (await bench.backfill()).tally.embedded == len(TEXTS)
        await build_index(source, "memories", INDEX)
        pool = await create_pool(source)
        async with pool:
            recall = HybridRecall(pool, Exact(), RecallOptions(embedding_budget=10.0, time_budget=60.0))
            result = await recall.recall(make_query(TEXTS[0], user_id="default", limit=1))
            await recall.close()
        assert (result.reason, result.memories[0].content) == (None, TEXTS[0])
        assert (await facts(database)).schema_current


async def test_a_mark_is_offered_as_a_statement_that_the_owner_may_run(bare_database: Database) -> None:
    """And never again once a server is recorded: the next database would be taken for that one."""
    index = World().index(database={"name": bare_database.name, "cluster": None})
    new = index.model_copy(update={"system_identifier": "", "status": {}})
    async with hosted(bare_database, PROVIDERS["neon"], marked=False) as database:
        refused = check_identity(new, None, await facts(database))
        assert refused is not None
        statement = refused.text[refused.text.index("COMMENT ON") :].rstrip(".")
        recorded = new.model_copy(update={"system_identifier": f"marked-{MARK}"})
        later = check_identity(recorded, None, await facts(database))
        assert later is not None
        assert "COMMENT ON" not in later.text
        async with database.connection() as connection:
            await connection.execute(statement)
        assert check_identity(new, None, await facts(database)) is None


async def test_without_identifier_and_mark_nothing_is_done(bare_database: Database, request_for: Requests) -> None:
    """Another mark, a removed one, or a longer word that has a mark in it."""
    async with hosted(bare_database, PROVIDERS["rds"]) as database:
        source = DsnText(database.dsn, (await facts(database)).identity)
        async with database.connection() as connection:
            for comment, refusal in {
                "memory-index:0123456789abcdef": DatabaseIdentityMismatch,
                f"xmemory-index:{MARK}": DatabaseRejected,
                "the notes": DatabaseRejected,
            }.items():
                await connection.execute(f"COMMENT ON DATABASE {database.name} IS '{comment}'")
                with pytest.raises(refusal):
                    await migrate(source, request_for())
            await connection.execute(f"COMMENT ON DATABASE {database.name} IS 'the notes; memory-index:{MARK}'")
            await migrate(source, request_for())


async def test_a_mark_outlives_a_restart_and_is_nowhere_else(own_database: Database) -> None:
    """Another database of the same server has none, though its owner is the same."""
    async with hosted(own_database, PROVIDERS["crunchy"]) as database:
        admin = await asyncpg.connect(database.superuser_dsn)
        await admin.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        await admin.execute(f"COMMENT ON DATABASE {database.name} IS 'memory-index:{MARK}'")
        await admin.execute("CREATE DATABASE another TEMPLATE template0")
        await admin.close()
        other = await asyncpg.connect(database.server.superuser_dsn("another"))
        await other.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        await other.close()
        database.server.restart()
        async with opened(DsnText(database.dsn), "test") as connection:
            assert (await read_identity(connection)).system_identifier == f"marked-{MARK}"
        with pytest.raises(DatabaseRejected, match="COMMENT ON DATABASE"):
            async with opened(DsnText(f"{database.dsn.rpartition('/')[0]}/another"), "test") as connection:
                await read_identity(connection)


async def test_no_mark_stands_for_the_server_of_a_cluster(bare_database: Database) -> None:
    """Whose system identifier CloudNativePG reports: an owner could mark a database as any server."""
    async with hosted(bare_database, PROVIDERS["rds"]) as database:
        found = await facts(database)
    world = World()
    verdict = check_identity(world.index(), world.observed().cluster, found)  # type: ignore[arg-type]
    assert verdict is not None
    assert verdict.reason.code == "DatabaseIdentityMismatch"
