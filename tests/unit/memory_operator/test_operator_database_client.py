"""Observing databases: within which limits, and what a server that floods the operator costs."""

import asyncio
import socket
import ssl
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devcluster.node.pki import Authority
from memory_operator.api.reasons import Reason
from memory_operator.clients import database
from memory_operator.clients.database import RECEIVED_BYTES, DatabaseClient
from memory_operator.reconcile.facts import Problem
from memory_recall.errors import DatabaseUnreachable
from memory_recall.postgres.connection import DsnText
from tests.support.loopback_server import LoopbackServer
from tests.unit.memory_operator.conftest import anywhere

DSN = "postgresql://owner@pg:5432/app"


class Server:
    """A database that works for some seconds on each answer."""

    def __init__(self) -> None:
        self.seconds, self.now = 0.0, 100.0
        self.limits: dict[str, Any] = {}

    async def connect(self, *_: Any, **limits: Any) -> "Server":
        self.limits = limits
        return self

    async def inspect(self, *_: Any, **__: Any) -> Any:
        self.now += self.seconds
        raise DatabaseUnreachable("The connection was lost.", "")

    async def close(self, **_: Any) -> None:
        return

    def time(self) -> float:
        return self.now


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr(database, "connect", found.connect)
    monkeypatch.setattr(database.status, "inspect", found.inspect)
    return found


@pytest.mark.promise("silent-server-delays-itself")
async def test_a_connection_is_given_three_seconds(server: Server) -> None:
    await DatabaseClient(anywhere).inspect(DsnText(DSN), "memories", "team")
    assert server.limits["connect_timeout"] == 3.0


async def test_the_time_of_the_statements_counts_although_they_failed(server: Server) -> None:
    server.seconds = 7.0
    inspection = await DatabaseClient(anywhere, server.time).inspect(DsnText(DSN), "memories", "team")
    assert isinstance(inspection.found, Problem)
    assert inspection.found.reason is Reason.DATABASE_UNREACHABLE
    assert inspection.query_seconds == 7.0


@pytest.mark.finding("D9")
async def test_the_time_of_connecting_does_not_count(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that does not answer is asked again soon."""

    async def refuse(*_: Any, **__: Any) -> None:
        server.now += 3.0
        raise DatabaseUnreachable("No answer.", "")

    monkeypatch.setattr(database, "connect", refuse)
    assert (await DatabaseClient(anywhere, server.time).inspect(DsnText(DSN), "memories", "team")).query_seconds == 0.0


WAIT_SECONDS = 60.0  # after which a test fails that would hang

OFFERED_BYTES = 64 * 1024 * 1024
BUFFERED_BYTES = 8 * 1024 * 1024  # what both ends of a connection hold at most that nobody has read
CANARY = b"words of the server"


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", 4 + len(body)) + body


def parameter(name: str, value: str) -> bytes:
    return message(b"S", f"{name}\0{value}\0".encode())


ACCEPTED = message(b"R", struct.pack("!I", 0))
READY = message(b"Z", b"I")
GREETING = ACCEPTED + parameter("server_version", "18.4") + READY
NOTICE = message(b"N", b"SNOTICE\0M" + CANARY + b"\0\0")
TWO_GIB = struct.pack("!I", 0x7FFFFFF0)
LETTERS = CANARY * 4000


@dataclass(frozen=True)
class Flood:
    """What the server says, and then repeats until it has offered 64 MiB."""

    opening: bytes
    repeated: bytes = b""


FLOODS = {
    "one message of 2 GiB": Flood(GREETING + b"N" + TWO_GIB, LETTERS),
    "one message of 2 GiB while authenticating": Flood(b"R" + TWO_GIB, LETTERS),
    "small notices without end": Flood(GREETING, NOTICE * 1500),
    "small notices while authenticating": Flood(ACCEPTED, NOTICE * 1500),
    "parameters without end": Flood(ACCEPTED, b"".join(parameter(f"p{n}", "") for n in range(6000))),
}


class HostileServer(LoopbackServer):
    """Accepts connections with or without TLS, sends a flood on each, and counts what the connections take of it."""

    def __init__(self, flood: Flood, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.sent = 0
        self._flood = flood
        self._tls = tls

    async def listen(self) -> asyncio.Server:
        """Listen with a small buffer, so that what was sent is about what was taken."""
        server = await super().listen()
        server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        return server

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._tls:
            await reader.readexactly(8)
            writer.write(b"S")
            await writer.start_tls(self._tls)
        await reader.readexactly(struct.unpack("!I", await reader.readexactly(4))[0] - 4)
        writer.write(self._flood.opening)
        while self._flood.repeated and self.sent < OFFERED_BYTES:
            writer.write(self._flood.repeated)
            await writer.drain()
            self.sent += len(self._flood.repeated)
        await reader.read()


@pytest.fixture
def certificate(tmp_path: Path) -> ssl.SSLContext:
    """What a server of this machine's address needs for TLS."""
    pair = Authority().server("hostile")
    (tmp_path / "pem").write_bytes(pair.key + pair.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pem")
    return context


async def protocol_violation(server: HostileServer, sslmode: str) -> Problem:
    """Observe the server's database, and return the problem, which must be what the server did and not quote it."""
    dsn = f"postgresql://owner:secret@127.0.0.1:{server.port}/app?sslmode={sslmode}"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(database, "CONNECT_SECONDS", WAIT_SECONDS)  # a busy machine is no fault of the server
        inspecting = DatabaseClient(anywhere).inspect(DsnText(dsn), "memories", "team")
        found = (await asyncio.wait_for(inspecting, WAIT_SECONDS)).found
    assert isinstance(found, Problem)
    assert found.reason is Reason.PROTOCOL_VIOLATION, found
    assert CANARY.decode() not in found.message + found.remedy
    return found


@pytest.mark.promise("hostile-server-memory-bounded")
@pytest.mark.usefixtures("complaints")
@pytest.mark.parametrize("sslmode", ["disable", "require", "prefer"])
@pytest.mark.parametrize("case", FLOODS)
async def test_a_server_that_floods_the_operator_is_cut_off_and_named(
    case: str, sslmode: str, certificate: ssl.SSLContext
) -> None:
    """Where a connection with TLS fails, `prefer` makes another one without it; both share what may be received."""
    async with HostileServer(FLOODS[case], None if sslmode == "disable" else certificate) as server:
        assert " bytes, so the connection" in (await protocol_violation(server, sslmode)).message
        assert server.sent < RECEIVED_BYTES + BUFFERED_BYTES


@pytest.mark.promise("hostile-messages-refused")
@pytest.mark.usefixtures("complaints")
@pytest.mark.parametrize("length", [3, 0, -2])
async def test_a_message_of_an_impossible_length_does_not_reach_the_driver(length: int) -> None:
    """The driver's compiled code reads beyond its memory at some of them."""
    async with HostileServer(Flood(GREETING + b"N" + struct.pack("!i", length))) as server:
        assert "fewer than 4 bytes" in (await protocol_violation(server, "disable")).message


def described(kind: int) -> bytes:
    """The description of one column of this type, named x."""
    return message(b"T", struct.pack("!H", 1) + b"x\0" + struct.pack("!ihihih", 0, 0, kind, -1, -1, 1))


def row(value: bytes, length: int | None = None) -> bytes:
    """A row of one value, which says that it has as many bytes as `length`, or as it has."""
    return message(b"D", struct.pack("!Hi", 1, len(value) if length is None else length) + value)


TEXT, TEXTS, BITS = 25, 1009, 1560  # types, by their object ids
MALFORMED = {
    "a value of a negative length": (described(TEXT) + row(b"x", -2), "malformed message of type 'D'"),
    "a value beyond the end": (described(TEXT) + row(b"x", 2), "malformed message of type 'D'"),
    "an array, whose size asyncpg would allocate": (described(TEXTS), "a column of the type 1009"),
    "a row without columns": (row(b"x"), "a row of other columns"),
    "a type of its own choice": (described(BITS), "a column of the type 1560"),
    "a text without an end": (message(b"S", b"name\0value"), "malformed message of type 'S'"),
    "more than a message of its type has": (message(b"Z", b"II"), "malformed message of type 'Z'"),
    "a message of another protocol": (message(b"W", b"\0\0\0"), "type 'W', which nobody asked for"),
}


@pytest.mark.promise("hostile-messages-refused")
@pytest.mark.usefixtures("complaints")
@pytest.mark.parametrize("case", MALFORMED)
async def test_a_malformed_message_does_not_reach_the_driver(case: str) -> None:
    """The driver's compiled code believes the lengths inside: it reads beyond its memory, or allocates 16 GiB."""
    sent, said = MALFORMED[case]
    async with HostileServer(Flood(GREETING + sent)) as server:
        assert said in (await protocol_violation(server, "disable")).message


@pytest.mark.promise("password-hashing-bounded")
@pytest.mark.usefixtures("complaints")
async def test_a_server_does_not_have_a_password_hashed_for_minutes() -> None:
    """The event loop would stand still meanwhile, and with it the work for all objects."""
    chosen = message(b"R", struct.pack("!I", 10) + b"SCRAM-SHA-256\0\0")
    demanded = message(b"R", struct.pack("!I", 11) + b"r=nonce,s=c2FsdA==,i=2000000000")
    async with HostileServer(Flood(chosen + demanded)) as server:
        assert "iterations" in (await protocol_violation(server, "disable")).message


@pytest.mark.promise("hostile-server-memory-bounded")
@pytest.mark.usefixtures("complaints")
async def test_a_server_that_does_not_say_its_version_is_named() -> None:
    async with HostileServer(Flood(ACCEPTED + READY)) as server:
        assert "version" in (await protocol_violation(server, "disable")).message


async def test_the_pooler_of_a_provider_is_named_before_anything_is_resolved() -> None:
    async def nowhere(_namespace: str, host: str) -> Problem:
        raise AssertionError(host)

    dsn = DsnText("postgresql://u@ep-cool-darkness-1-pooler.eu-central-1.aws.neon.tech/app")
    found = (await DatabaseClient(nowhere).inspect(dsn, "memories", "team")).found
    assert isinstance(found, Problem)
    assert (found.reason, "-pooler" in (found.remedy or "")) == (Reason.POOLER_REFUSED, True)
