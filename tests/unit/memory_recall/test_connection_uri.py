"""A connection string is taken apart by us: what the driver gets of it, and what is refused and how."""

import os
import socket
import ssl
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from memory_recall.errors import InvalidConfiguration
from memory_recall.postgres import connection
from memory_recall.postgres.connection import DsnText, connect, driver_arguments
from memory_recall.postgres.connection_uri import LONGEST, ConnectionUri, Server, parse
from memory_recall.postgres.tls import DatabaseTls, TlsMode

CANARY = "s3cret-pa55word"
FORM = "postgresql://USER:PASSWORD@HOST:5432/DATABASE"


def refused(text: str) -> InvalidConfiguration:
    with pytest.raises(InvalidConfiguration) as caught:
        parse(text)
    assert CANARY not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg", "postgresql+psycopg"])
def test_a_connection_string_is_taken_apart(scheme: str) -> None:
    found = parse(f"{scheme}://us%40er:p%3Aw%2F@pg-rw.team.svc:5433/my%20app?sslmode=require\n")
    assert found == ConnectionUri((Server("pg-rw.team.svc", 5433),), "us@er", "p:w/", "my app", TlsMode.REQUIRE)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("postgresql://u@h/d", [("h", 5432)]),
        ("postgresql://u@h1:1,h2,[fd00::1]:3/d", [("h1", 1), ("h2", 5432), ("fd00::1", 3)]),
        ("postgresql://u@h1,h2/d?port=7", [("h1", 7), ("h2", 7)]),
        ("postgresql://u@h1,h2/d?port=7,8", [("h1", 7), ("h2", 8)]),
        ("postgresql://u@/d?host=h1,h2&port=1,2", [("h1", 1), ("h2", 2)]),
        ("postgresql://u@%2Frun%2Fpostgresql/d", [("/run/postgresql", 5432)]),
        ("postgresql:///?host=/run/a&user=u&dbname=d&password=p", [("/run/a", 5432)]),
    ],
)
def test_servers_are_read_as_libpq_reads_them(text: str, servers: list[tuple[str, int]]) -> None:
    found = parse(text)
    assert (list(found.servers), found.user, found.database) == (servers, "u", "d")


def test_the_printed_form_has_no_password() -> None:
    assert CANARY not in repr(parse(f"postgresql://u:{CANARY}@h/d"))


@pytest.mark.promise("uri-opens-no-file")
@pytest.mark.finding("security S1")
@pytest.mark.parametrize(
    "name",
    ["sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "sslcrldir", "passfile", "service", "servicefile",
     "sslkeylogfile", "gsslib", "krbsrvname", "options"],
)  # fmt: skip
def test_what_names_a_file_a_service_or_a_plugin_is_refused_by_its_name(name: str) -> None:
    """The driver would open the file in the event loop; a pipe or a terminal among them never ends."""
    error = refused(f"postgresql://u:{CANARY}@h/d?{name}=/dev/ptmx")
    assert f"parameter {name} is not supported" in error.message
    assert error.remedy.startswith(f"{name}: Take it out")


@pytest.mark.finding("operator F4")
@pytest.mark.parametrize(
    ("query", "remedy"),
    [
        ("sslmode=verify-full&sslrootcert=/path/ca.crt", "spec.database.tls.caSecret"),
        ("sslmode=verify-ca&sslrootcert=/path/ca.crt", "MEMORY_DATABASE_CA_FILE"),
        ("sslcert=/path/tls.crt", "spec.database.credentials.clientCertificate"),
        ("sslkey=/path/tls.key", "MEMORY_DATABASE_CERTIFICATE_FOLDER"),
        ("sslcertmode=require", "shown where one is configured"),
        ("channel_binding=always", "Use require"),
        ("schema=notes", "SCHEMA.TABLE"),
        ("currentSchema=notes", "SCHEMA.TABLE"),
        ("ssl=true", "sslmode=require"),
        ("sslaccept=strict", "verify-full"),
        ("options=endpoint%3Dep-cool-1", "the name of the host"),
        ("options=-c%20search_path%3Dx", "ALTER ROLE"),
        ("hostaddr=10.0.0.1", "in place of the host"),
        ("sslnegotiation=direct", "sslnegotiation: Take it out"),
    ],
)
def test_a_parameter_that_is_not_supported_is_named_with_its_own_remedy(query: str, remedy: str) -> None:
    assert remedy in refused(f"postgresql://u:p@h/d?{query}").remedy


@pytest.mark.finding("operator F4")
@pytest.mark.parametrize(
    ("query", "mode"),
    [
        ("sslmode=require", TlsMode.REQUIRE),
        ("sslmode=allow", TlsMode.PREFER),
        ("sslmode=verify-full", TlsMode.VERIFY_FULL),
        ("sslrootcert=system", TlsMode.VERIFY_FULL),
        ("sslmode=require&sslrootcert=system", TlsMode.VERIFY_FULL),
        ("application_name=x&keepalives_idle=30&connect_timeout=5&tcp_user_timeout=9", None),
        ("sslmode=require&channel_binding=require", TlsMode.VERIFY_FULL),
        ("pgbouncer=true&connection_limit=1&pool_timeout=20&socket_timeout=30&statement_cache_size=0", None),
        ("uselibpqcompat=true&sslmode=require&supa=base-pooler.x", TlsMode.REQUIRE),
        ("channel_binding=prefer&gssencmode=disable&client_encoding=utf8&sslnegotiation=postgres", None),
    ],
)
def test_parameters_of_other_programs_that_ask_for_nothing_more_are_accepted(query: str, mode: TlsMode | None) -> None:
    assert parse(f"postgresql://u:p@h/d?{query}").mode is mode


def test_all_faults_are_named_at_once() -> None:
    error = refused("postgresql://h:0/?sslmode=some&passfile=/x&service=y&target_session_attrs=z")
    for fault in ("no user", "no database", "a port", "sslmode", "passfile", "service", "target_session_attrs"):
        assert fault in error.message


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", f"host=x password={CANARY}", f"mysql://u:{CANARY}@h/d", f"postgresql://u:{CANARY}@[::/d",
     f"postgresql://u:p@h/{CANARY}@pg/app", f"postgresql://u:p@h/{CANARY}?x@pg/app", f"postgresql://u:p#{CANARY}@pg/app",
     f"postgresql://u:p@h/{CANARY}/app", f"postgresql://u:p@{CANARY}@h/d", f"postgresql://u:{CANARY}%zz@h/d",
     f"postgresql://u:p@h/d?{CANARY}=1", f"postgresql://u:p@h/d?sslmode={CANARY}", f"postgresql://u:p@h:{CANARY}/d",
     f"postgresql://u%00options%00{CANARY}:p@h/d", f"postgresql://u:p@a..{CANARY}/d", f"postgresql://u:\udcff{CANARY}@h/d",
     f"postgresql://u:{CANARY * LONGEST}@h/d", f"postgresql://u:p@{'h,' * 20}{CANARY}/d", f"postgresql:///{CANARY}"],
)  # fmt: skip
def test_an_unusable_connection_string_is_refused_without_being_quoted(text: str) -> None:
    assert refused(text).remedy


def test_a_parameter_that_stands_twice_is_named() -> None:
    assert "sslmode twice" in refused("postgresql://u:p@h/d?sslmode=disable&sslmode=verify-full").message


class Driver:
    """Stands in for the driver and keeps what it was called with."""

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}

    async def __call__(self, **arguments: Any) -> Any:
        self.arguments = arguments
        raise asyncpg.InvalidPasswordError("no")


@pytest.mark.promise("uri-opens-no-file")
@pytest.mark.finding("security S1")
async def test_the_driver_takes_nothing_from_variables_and_files_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is a pipe without a writer: opening one would block this test for good."""
    home = tmp_path / ".postgresql"
    home.mkdir()
    for name in ("root.crt", "root.crl", "postgresql.crt", "postgresql.key"):
        os.mkfifo(home / name)
    for path in (tmp_path / ".pgpass", tmp_path / ".pg_service.conf"):
        os.mkfifo(path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGSSLCRL", "PGPASSFILE", "PGSERVICEFILE", "SSLKEYLOGFILE"):
        monkeypatch.setenv(name, str(home / "root.crt"))
    for name, value in {
        "PGSERVICE": "x", "PGHOST": "203.0.113.1", "PGPORT": "9", "PGUSER": "x", "PGPASSWORD": CANARY,
        "PGDATABASE": "x", "PGSSLMODE": "verify-full", "PGSSLNEGOTIATION": "direct", "PGTARGETSESSIONATTRS": "standby",
        "PGKRBSRVNAME": "x", "PGGSSLIB": "x", "PGSSLMINPROTOCOLVERSION": "x",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    uri = parse("postgresql://owner@127.0.0.1:1/app")
    for tls in (None, DatabaseTls().context(TlsMode.REQUIRE)):
        addresses, parameters = asyncpg.connect_utils._parse_connect_dsn_and_args(
            passfile=None, service=None, servicefile=None, server_settings=None,
            **driver_arguments(uri, uri.servers[0], tls, "any"),
        )  # fmt: skip
        assert addresses == [("127.0.0.1", 1)]
        assert (parameters.user, parameters.password, parameters.database) == ("owner", "", "app")
        assert parameters.target_session_attrs.value == "any"
        assert parameters.krbsrvname == "postgres"
        assert parameters.ssl_negotiation.name == "postgres"


@pytest.mark.finding("operator F4")
@pytest.mark.parametrize(
    ("uri", "least", "mode"),
    [
        ("", None, TlsMode.PREFER),
        ("sslmode=disable", None, TlsMode.DISABLE),
        ("sslmode=disable", TlsMode.VERIFY_CA, TlsMode.VERIFY_CA),
        ("sslmode=verify-full", TlsMode.REQUIRE, TlsMode.VERIFY_FULL),
        ("", TlsMode.REQUIRE, TlsMode.REQUIRE),
    ],
)
def test_the_stricter_of_connection_string_and_settings_counts(uri: str, least: TlsMode | None, mode: TlsMode) -> None:
    assert DatabaseTls(least).mode_of(parse(f"postgresql://u@h/d?{uri}").mode) is mode


def test_certificates_that_are_given_are_used() -> None:
    assert DatabaseTls(ca="x").mode_of(None) is TlsMode.VERIFY_FULL
    assert DatabaseTls(TlsMode.VERIFY_CA, ca="x").mode_of(TlsMode.DISABLE) is TlsMode.VERIFY_CA


@pytest.mark.parametrize("ca", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_certificates_that_are_none_are_refused(ca: str) -> None:
    with pytest.raises(InvalidConfiguration):
        DatabaseTls(ca=ca).context(TlsMode.VERIFY_CA)


def test_a_signature_cannot_be_verified_without_an_authority() -> None:
    with pytest.raises(InvalidConfiguration, match="no certificate authority is given"):
        DatabaseTls().context(TlsMode.VERIFY_CA)


def test_a_full_name_is_verified_by_the_public_authorities_where_no_other_is_given() -> None:
    context = DatabaseTls().context(TlsMode.VERIFY_FULL)
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


async def test_only_one_function_of_what_ships_opens_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(connection.asyncpg, "connect", driver)
    with pytest.raises(Exception, match="credentials"):
        await connect(DsnText("postgresql://u@h/d?sslmode=disable"))
    assert driver.arguments["host"] == "h"
    root = Path(__file__).parents[3]
    shipped = [path for folder in ("recall", "operator", "migrations") for path in (root / folder).rglob("*.py")]
    openers = {path.name for path in shipped if "asyncpg.connect(" in path.read_text()}
    assert openers == {"connection.py"}


async def test_a_server_that_is_silent_leaves_time_for_the_next_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        ports = silent.getsockname()[1], closed.getsockname()[1]
        closed.close()
        with pytest.raises(Exception, match="ConnectionRefusedError"):
            await connect(DsnText(f"postgresql://u@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/d"), connect_timeout=1.0)
