"""TLS to Postgres: who is refused, what is verified, and how a rotated authority is followed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memory_recall import status
from memory_recall.errors import AuthenticationFailed, DatabaseUnreachable, InvalidConfiguration, ServerNotVerified
from memory_recall.postgres.connection import DsnText, connect, create_pool, opened
from memory_recall.postgres.tls import DatabaseTls, TlsMode
from memory_recall.settings import Settings
from tests.integration.conftest import Database
from tests.integration.memory_recall.tls_front import Authority, TlsFront
from tests.integration.memory_recall.workbench import Workbench

OURS, OTHER = Authority(), Authority()
CA = OURS.certificate


def through(front: TlsFront, database: Database, query: str = "", host: str = "127.0.0.1") -> str:
    """The database's connection string by way of the server with TLS."""
    return f"{database.dsn.replace(f'127.0.0.1:{database.server.port}', f'{host}:{front.port}')}?{query}".rstrip("?")


async def reached(dsn: str, tls: DatabaseTls) -> Any:
    connection = await connect(DsnText(dsn, tls=tls))
    try:
        return await connection.fetchval("SELECT current_database()")
    finally:
        await connection.close()


@pytest.mark.finding("operator F4")
@pytest.mark.parametrize(
    ("query", "tls"),
    [
        ("", DatabaseTls(ca=CA)),
        ("sslmode=disable", DatabaseTls(TlsMode.VERIFY_FULL, CA)),
        ("sslmode=verify-full", DatabaseTls(TlsMode.VERIFY_CA, CA)),
        ("sslmode=verify-ca", DatabaseTls(TlsMode.REQUIRE, CA)),
        ("", DatabaseTls(ca=OTHER.certificate + CA)),
        ("sslmode=require", DatabaseTls()),
        ("", DatabaseTls()),
    ],
)
async def test_a_server_of_the_trusted_authority_is_reached_with_tls(
    query: str, tls: DatabaseTls, database: Database
) -> None:
    async with TlsFront(database.server.port, OURS.server("pg")) as front:
        assert await reached(through(front, database, query), tls) == database.name
        assert (front.encrypted, front.plain) == (1, 0)


@pytest.mark.promise("database-server-verified")
@pytest.mark.finding("operator F4")
@pytest.mark.parametrize("mode", [None, TlsMode.VERIFY_CA, TlsMode.VERIFY_FULL])
async def test_a_server_of_another_authority_is_refused(mode: TlsMode | None, database: Database) -> None:
    async with TlsFront(database.server.port, OTHER.server("pg")) as front:
        with pytest.raises(ServerNotVerified, match="not trusted") as caught:
            await reached(through(front, database), DatabaseTls(mode, CA))
        assert front.plain == 0, "and not tried without TLS"
    assert "spec.database.tls.caSecret" in caught.value.remedy


async def test_public_authorities_do_not_vouch_for_a_private_server(database: Database) -> None:
    async with TlsFront(database.server.port, OURS.server("pg")) as front:
        with pytest.raises(ServerNotVerified):
            await reached(through(front, database, "sslmode=verify-full"), DatabaseTls())


@pytest.mark.promise("database-server-verified")
@pytest.mark.finding("operator F4")
async def test_the_certificate_must_be_that_of_the_host_unless_only_the_authority_counts(database: Database) -> None:
    async with TlsFront(database.server.port, OURS.server("pg"), host="127.0.0.2") as front:
        dsn = through(front, database, host="127.0.0.2")
        with pytest.raises(ServerNotVerified, match="another host"):
            await reached(dsn, DatabaseTls(ca=CA))
        assert await reached(dsn, DatabaseTls(TlsMode.VERIFY_CA, CA)) == database.name


async def test_a_server_without_tls_is_used_only_where_tls_is_not_demanded(database: Database) -> None:
    async with TlsFront(database.server.port, None) as front:
        for query in ("", "sslmode=prefer", "sslmode=disable"):
            assert await reached(through(front, database, query), DatabaseTls()) == database.name
        for tls in (DatabaseTls(TlsMode.REQUIRE), DatabaseTls(ca=CA)):
            with pytest.raises(DatabaseUnreachable, match="TLS"):
                await reached(through(front, database), tls)


async def test_a_refused_password_is_not_sent_again_without_tls(database: Database) -> None:
    async with TlsFront(database.server.port, OURS.server("pg")) as front:
        dsn = through(front, database).replace("app-password-canary", "wrong")
        with pytest.raises(AuthenticationFailed):
            await reached(dsn, DatabaseTls())
        assert (front.encrypted, front.plain) == (1, 0)


async def test_the_second_server_is_used_where_the_first_is_not_verified(database: Database) -> None:
    async with (
        TlsFront(database.server.port, OTHER.server("pg")) as wrong,
        TlsFront(database.server.port, OURS.server("pg")) as right,
    ):
        dsn = through(right, database).replace("@", f"@127.0.0.1:{wrong.port},")
        assert await reached(dsn, DatabaseTls(ca=CA)) == database.name


async def test_settings_verify_the_server_for_every_command(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(CA)
    monkeypatch.setenv("MEMORY_DATABASE_CA_FILE", str(file))
    async with TlsFront(bench.database.server.port, OURS.server("pg")) as front:
        monkeypatch.setenv("MEMORY_DATABASE_URL", through(front, bench.database))
        async with opened(Settings().dsn(), "test") as connection:
            assert (await status.inspect(connection, "memories")).schema_current
        monkeypatch.setenv("MEMORY_DATABASE_TLS_MODE", "verify-ca")
        assert Settings().dsn().tls == DatabaseTls(TlsMode.VERIFY_CA, file)
        file.write_text(OTHER.certificate)
        with pytest.raises(ServerNotVerified):
            async with opened(Settings().dsn(), "test"):
                pass
        file.unlink()
        with pytest.raises(InvalidConfiguration, match=r"ca\.crt"):
            async with opened(Settings().dsn(), "test"):
                pass


async def test_a_rotated_authority_is_followed_by_a_pool_while_it_is_used(database: Database, tmp_path: Path) -> None:
    """First both authorities are trusted, then the server has the new certificate, then the old authority goes."""
    file, new = tmp_path / "ca.crt", Authority()
    file.write_text(CA)
    async with TlsFront(database.server.port, OURS.server("pg")) as front:
        source = DsnText(through(front, database), tls=DatabaseTls(ca=file))
        pool = await create_pool(source, min_size=1, max_size=4)
        stop, answers = asyncio.Event(), asyncio.Semaphore(0)

        async def ask() -> None:
            while not stop.is_set():
                async with pool.acquire() as connection:
                    assert await connection.fetchval("SELECT 1") == 1
                answers.release()
                await pool.expire_connections()  # so that each question opens a connection

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(ask())
            for step in (
                lambda: file.write_text(CA + new.certificate),
                lambda: front.exchange(new.server("pg")),
                lambda: file.write_text(new.certificate),
            ):
                step()
                for _ in range(20):
                    await answers.acquire()
            stop.set()
        await pool.close()
        with pytest.raises(ServerNotVerified):
            await reached(source.dsn, DatabaseTls(ca=CA))
