"""A role logs in by a certificate: who is let in, what is said where it is not, and how a renewed one is followed."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from devcluster.node.pki import Authority, Pair
from memory_recall.errors import AuthenticationFailed
from memory_recall.postgres.connection import DsnText, connect, opened
from memory_recall.postgres.tls import DatabaseTls
from memory_recall.settings import Settings
from tests.integration.conftest import Database
from tests.integration.memory_recall.certified import CA, CLIENTS, OURS, Mounted, dsn, front, shown
from tests.support.postgres_instance import CERTIFIED_ROLE

OTHERS = Authority(name="another")
NOW = datetime.now(UTC)
BOTH_VERSIONS = pytest.mark.parametrize("latest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


async def user_of(text: str, tls: DatabaseTls) -> Any:
    connection = await connect(DsnText(text, tls=tls))
    try:
        return await connection.fetchval("SELECT current_user")
    finally:
        await connection.close()


@BOTH_VERSIONS
async def test_a_role_without_a_password_logs_in_by_its_certificate(database: Database, latest: ssl.TLSVersion) -> None:
    async with front(database, latest=latest) as server:
        assert await user_of(dsn(database, server), shown(OURS)) == CERTIFIED_ROLE
        assert (server.encrypted, server.plain) == (1, 0)


@BOTH_VERSIONS
@pytest.mark.parametrize(
    ("pair", "said", "remedy"),
    [
        (CLIENTS.client("another", ""), "28000", "common name must be that role"),
        (OTHERS.client(CERTIFIED_ROLE, ""), "an authority has signed it that the server does not trust", "signed by"),
        (None, "28000", "a client certificate"),
    ],
)
async def test_a_certificate_that_the_server_refuses_is_named_with_what_is_wrong(
    database: Database, latest: ssl.TLSVersion, pair: Pair | None, said: str, remedy: str
) -> None:
    tls = shown(pair) if pair else DatabaseTls(ca=CA)
    async with front(database, latest=latest) as server:
        with pytest.raises(AuthenticationFailed, match=said) as caught:
            await user_of(dsn(database, server), tls)
        assert server.plain == 0, "and not tried without TLS"
    assert remedy in caught.value.remedy


@BOTH_VERSIONS
@pytest.mark.parametrize(("days", "said"), [(-400, "it has expired"), (2, "is not valid yet")])
async def test_a_certificate_at_the_wrong_time_is_named(
    database: Database, latest: ssl.TLSVersion, days: int, said: str
) -> None:
    now = Authority(NOW + timedelta(days=days))
    trusted = now.certificate.decode()
    async with front(database, clients=trusted, latest=latest) as server:
        with pytest.raises(AuthenticationFailed, match=said):
            await user_of(dsn(database, server), shown(now.client(CERTIFIED_ROLE, "")))


async def test_every_command_logs_in_by_the_folder_that_its_settings_name(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.crt").write_text(CA)
    mounted = Mounted(tmp_path / "secret", OURS)
    monkeypatch.setenv("MEMORY_DATABASE_CA_FILE", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("MEMORY_DATABASE_CERTIFICATE_FOLDER", str(tmp_path / "secret"))
    async with front(database) as server:
        monkeypatch.setenv("MEMORY_DATABASE_URL", dsn(database, server))
        source = Settings().dsn()
        async with opened(source, "test") as connection:
            assert await connection.fetchval("SELECT current_user") == CERTIFIED_ROLE
        mounted.write(CLIENTS.client("another", ""))
        with pytest.raises(AuthenticationFailed):
            async with opened(source, "test"):
                pass
