"""Clients that hold connections are cut off, and never keep others out; on a real socket with short limits."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from prometheus_client import Counter

from memory_embedder.errors import ErrorKind
from memory_embedder.http import connections
from memory_embedder.http.app import build_app
from memory_embedder.http.connections import BoundedConfig, BoundedServer, ConnectionLimits, bounded_connections
from memory_embedder.http.waiting import Step
from memory_embedder.scheduling.service import EmbeddingService
from memory_embedder.telemetry.metrics import Metrics
from tests.unit.memory_embedder.conftest import until

BRIEF = ConnectionLimits(connections=100, body_seconds=0.2, head_seconds=0.2, unread_seconds=0.2, idle_seconds=60)
LONG_LIMITS = ConnectionLimits(connections=100, body_seconds=60, head_seconds=60)
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
HEAD = b"POST / HTTP/1.1\r\nhost: x\r\n"
LARGE = 64 << 20


@dataclass
class Application:
    """Answers `/large` with 64 MiB in pieces, `/whole` with 8 MiB at once, other paths with `ok`, once it may.

    `/body` reads the body before.
    """

    may_answer: asyncio.Event
    asked: int = 0
    body: bytes = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.asked += 1
        more = scope["path"] == "/body"
        while more:
            message = await receive()
            self.body += message.get("body", b"")
            more = message.get("more_body", False)
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(LARGE >> 20 if scope["path"] == "/large" else 0):
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
        await send({"type": "http.response.body", "body": bytes(8 << 20) if scope["path"] == "/whole" else b"ok"})


@pytest.fixture
def application() -> Application:
    event = asyncio.Event()
    event.set()
    return Application(event)


@dataclass
class Running:
    """A server on a port of its own."""

    server: uvicorn.Server
    port: int
    refusals: int = 0

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)

    def has_ended(self) -> bool:
        """Return whether all is written on the only connection, which stays until its client closes it."""
        return [one.ended for one in bounded_connections(self.server.server_state)] == [True]

    def arriving(self) -> Step | None:
        """Return what is arriving on the only connection, or None if nothing of a request has arrived."""
        (one,) = bounded_connections(self.server.server_state) or (None,)
        return one._arriving if one else None

    async def open(self, data: bytes = b"", *, window: int | None = None) -> socket.socket:
        connection = socket.socket()
        connection.settimeout(0)
        if window:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, ("127.0.0.1", self.port))
        await loop.sock_sendall(connection, data)
        return connection

    async def get(self, path: str = "/") -> str:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}") as client:
            return (await client.get(path)).text


@asynccontextmanager
async def serving(
    application: Application | FastAPI,
    limits: ConnectionLimits,
    metrics: Metrics | None = None,
    *,
    drain_seconds: float = 1,
) -> AsyncIterator[Running]:
    def count(_kind: ErrorKind) -> None:
        running.refusals += 1

    on_refusal = count if metrics is None else metrics.count_unread
    config = BoundedConfig(application, "127.0.0.1", 0, limits, drain_seconds, on_refusal=on_refusal)
    server = BoundedServer(config)
    running = Running(server, 0)
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    running.port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        if isinstance(application, Application):
            application.may_answer.set()
        server.should_exit = True
        await task


async def rest(connection: socket.socket) -> bytes:
    """Read until the server ends the connection."""
    received = bytearray()
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(20):
        with suppress(ConnectionError):
            while data := await loop.sock_recv(connection, 1 << 16):
                received += data
    connection.close()
    return bytes(received)


def _is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed a connection, of which nothing is read."""
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def trickle(connection: socket.socket) -> None:
    """Send a field of a head twenty times a second, for at most 20 s."""
    async with asyncio.timeout(20):
        while True:
            await asyncio.get_running_loop().sock_sendall(connection, b"x: y\r\n")
            await asyncio.sleep(0.05)


async def pour(connection: socket.socket, size: int) -> None:
    """Send so many bytes in pieces of 4 KiB, between which the server has its turn."""
    for _ in range(size >> 12):
        await asyncio.get_running_loop().sock_sendall(connection, b"y" * 4096)
        await asyncio.sleep(0.001)


UNFINISHED: dict[str, bytes] = {
    "nothing": b"",
    "a part of the first line": b"POST /",
    "a part of the head": HEAD + b"x: ",
    "a head without a body": HEAD + b"content-length: 10\r\n\r\n",
    "a part of the body of a request that is answered": HEAD + b"content-length: 10\r\n\r\n12345",
}


@pytest.mark.finding("M3")
@pytest.mark.parametrize("data", UNFINISHED.values(), ids=UNFINISHED.keys())
async def test_a_connection_that_does_not_go_on_with_its_request_is_closed(
    application: Application, data: bytes
) -> None:
    async with serving(application, BRIEF) as running:
        await rest(await running.open(data))


async def test_an_empty_line_behind_a_request_does_not_keep_a_connection_for_good(application: Application) -> None:
    async with serving(application, BRIEF) as running:
        connection = await running.open(HEAD + b"content-length: 0\r\n\r\n")
        loop = asyncio.get_running_loop()
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += await loop.sock_recv(connection, 1 << 16)
        await loop.sock_sendall(connection, b"\r\n")
        await rest(connection)


async def test_a_byte_now_and_then_does_not_prolong_a_head(application: Application) -> None:
    async with serving(application, BRIEF) as running:
        connection = await running.open(HEAD)
        with pytest.raises(ConnectionError):
            await trickle(connection)
        connection.close()


async def test_an_answer_that_is_not_taken_ends_its_connection(application: Application) -> None:
    async with serving(application, BRIEF) as running:
        connection = await running.open(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n", window=4096)
        await until(lambda: running.connections == 1)
        await until(lambda: running.connections == 0)
        connection.close()


@pytest.mark.parametrize(
    "field", [b"", b"connection: close\r\n"], ids=["a further request may come", "the last answer"]
)
async def test_an_answer_that_is_written_may_be_taken_as_late_as_one_that_is_being_written(
    application: Application, field: bytes
) -> None:
    async with serving(application, LONG_LIMITS) as running:
        connection = await running.open(b"GET /whole HTTP/1.1\r\nhost: x\r\n" + field + b"\r\n", window=4096)
        await until(lambda: running.server.server_state.total_requests == 1)
        (served,) = bounded_connections(running.server.server_state)
        written = time.monotonic()
        assert [served.is_overdue(written), served.is_overdue(written + 50)] == [False, False]
        assert served.is_overdue(written + 70)
        connection.close()


async def test_a_request_with_another_behind_it_learns_that_its_caller_has_gone(application: Application) -> None:
    heard: list[str] = []

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            while "http.disconnect" not in heard:
                heard.append((await receive())["type"])
        else:
            await application(scope, receive, send)

    async with serving(application, LONG_LIMITS) as running:
        running.server.config.loaded_app = listening
        connection = await running.open(2 * b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: heard == ["http.request"])
        connection.close()
        await until(lambda: heard == ["http.request", "http.disconnect"])


async def test_more_requests_than_may_wait_for_the_one_before_them_end_their_connection(
    application: Application,
) -> None:
    application.may_answer.clear()
    async with serving(application, LONG_LIMITS) as running:
        few = await running.open(16 * b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + b"GET / HTTP/1.0\r\n\r\n")
        await until(lambda: application.asked == 1)
        many = await running.open(1000 * b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await rest(many) == b""
        application.may_answer.set()
        assert (await rest(few)).count(b"200 OK") == 17
    assert application.asked == 18


async def test_a_request_is_not_late_while_it_is_being_computed(application: Application) -> None:
    application.may_answer.clear()
    async with serving(application, LONG_LIMITS) as running:
        connection = await running.open(HEAD + b"content-length: 2\r\nconnection: close\r\n\r\n{}\r\n")
        await until(lambda: application.asked == 1)
        (served,) = bounded_connections(running.server.server_state)
        assert not served.is_overdue(time.monotonic() + 3600)
        application.may_answer.set()
        assert (await rest(connection)).endswith(b"ok\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"x-%d: y\r\n" % number for number in range(101)) + b"\r\n",
        b"x: " + b"y" * (1 << 20),
        b"x: " + b"y" * (66 << 10) + b"\r\n\r\n",
    ],
    ids=["many fields", "a long field", "a little too much at once"],
)
async def test_a_head_that_is_too_large_ends_its_connection(application: Application, head: bytes) -> None:
    async with serving(application, LONG_LIMITS) as running:
        connection = await running.open()
        loop = asyncio.get_running_loop()
        answer = b""
        try:
            await loop.sock_sendall(connection, HEAD + head)
            answer = await rest(connection)
        except ConnectionError:
            connection.close()
        assert not answer or answer.startswith(b"HTTP/1.1 400 ")
        assert application.asked == 0


EMBED = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNKED = b"POST /body HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "begun",
    [b"1\r\nx\r\n0\r\nx: ", b"0\r\n", b"1\r\nx\r\n1;x="],
    ids=["a field behind the body", "its name", "the size of a piece"],
)
async def test_what_is_no_body_and_does_not_end_behind_a_piece_of_one_ends_its_connection(
    application: Application, begun: bytes
) -> None:
    """The parser keeps an unfinished field, and copies all of it whenever something comes."""
    async with serving(application, LONG_LIMITS) as running:
        connection = await running.open(CHUNKED + begun)
        with pytest.raises(ConnectionError):
            await pour(connection, LONG_LIMITS.head_bytes * 16)
        connection.close()


async def test_a_body_in_pieces_of_a_hundred_thousand_bytes_with_a_field_behind_it_is_served(
    application: Application,
) -> None:
    async with serving(application, LONG_LIMITS) as running:
        connection = await running.open(CHUNKED + b"186a0\r\n" + b"x" * 100_000 + b"\r\n0\r\nx: y\r\n\r\n")
        assert (await rest(connection)).startswith(b"HTTP/1.1 200 ")
    assert len(application.body) == 100_000


@pytest.mark.parametrize(("size", "pieces", "status"), [(1, 4096, 200), (1, 4200, 400), (100, 4200, 200)])
async def test_a_body_of_very_many_small_pieces_is_refused(
    application: Application, size: int, pieces: int, status: int
) -> None:
    piece = b"%x\r\n%b\r\n" % (size, b"x" * size)
    async with serving(application, LONG_LIMITS) as running:
        connection = await running.open(CHUNKED + piece * pieces + b"0\r\n\r\n")
        assert (await rest(connection)).startswith(b"HTTP/1.1 %d " % status)


MALFORMED = {
    "no HTTP": b"nonsense\r\n\r\n",
    "no size of a piece": CHUNKED + b"y\r\n",
    "a long field behind a body": CHUNKED + b"0\r\nx: " + b"y" * (65 << 10) + b"\r\n\r\n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_request_is_answered_in_the_envelope_of_all_errors(
    application: Application, data: bytes
) -> None:
    async with serving(application, LONG_LIMITS) as running:
        head, _, body = (await rest(await running.open(data))).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n")
    assert b"content-length: %d\r\n" % len(body) in head
    assert json.loads(body)["error"]["code"] == "malformed_http"


def is_malformed(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether the server has found one request malformed, which it logs."""
    return [record.message for record in caplog.records] == ["Invalid HTTP request received."]


async def test_a_malformed_request_behind_another_is_not_answered_before_it_nor_in_its_place(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    application.may_answer.clear()
    async with serving(application, LONG_LIMITS) as running:
        connection = await running.open(GET + b"nonsense\r\n\r\n")
        await until(lambda: application.asked == 1)
        await pour(connection, 16 << 10)
        application.may_answer.set()
        answer = await rest(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"ok\r\n0\r\n\r\n")
    assert b" 400 " not in answer
    assert is_malformed(caplog)


async def test_a_malformed_body_behind_another_request_ends_the_connection_with_that_ones_answer(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    """Else it would wait for the rest of its body, which is not read."""
    application.may_answer.clear()
    async with serving(application, LONG_LIMITS) as running:
        connection = await running.open(GET + CHUNKED + b"y\r\n")
        await until(lambda: application.asked == 1 and is_malformed(caplog))
        application.may_answer.set()
        answer = await rest(connection)
    assert (answer.count(b"HTTP/1.1 "), application.asked) == (1, 1)


async def test_a_malformed_request_writes_nothing_into_an_answer_that_is_being_written(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(application, LONG_LIMITS) as running:
        connection = await running.open(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        loop = asyncio.get_running_loop()
        begun = await loop.sock_recv(connection, 1 << 10)
        await loop.sock_sendall(connection, b"nonsense\r\n\r\n")
        await until(lambda: is_malformed(caplog))
        answer = begun + await rest(connection)
    assert answer.count(b"\0") == LARGE
    assert answer.endswith(b"ok\r\n0\r\n\r\n")


UNREAD = {
    "no HTTP": ([b"nonsense\r\n\r\n"], "unmatched"),
    "a malformed body": ([EMBED + b"y\r\n"], "/v1/embeddings"),
    "a malformed body later": ([EMBED, b"y\r\n"], "/v1/embeddings"),
    "no HTTP behind a request": ([b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\nnonsense\r\n\r\n"], "unmatched"),
}


@pytest.mark.parametrize(("pieces", "route"), UNREAD.values(), ids=UNREAD.keys())
async def test_a_malformed_request_is_counted_once_as_what_it_is(
    service: EmbeddingService, pieces: list[bytes], route: str
) -> None:
    async with serving(build_app(service), LONG_LIMITS, service.metrics) as running:
        connection = await running.open()
        for piece in pieces:
            await asyncio.get_running_loop().sock_sendall(connection, piece)
            if piece is EMBED:
                await until(lambda: running.arriving() is Step.BODY)
        await rest(connection)
        await until(lambda: running.connections == 0)
    assert refused(service) == {("malformed_http",): 1}
    assert {of: count for of, count in answered(service).items() if of[1] != "200"} == {(route, "400"): 1}


async def test_a_request_that_makes_room_while_its_body_arrives_is_counted_once_as_refused(
    service: EmbeddingService,
) -> None:
    few = replace(LONG_LIMITS, connections=1, held_seconds=0)
    async with serving(build_app(service), few, service.metrics) as running:
        slow = await running.open(EMBED)
        await until(lambda: running.arriving() is Step.BODY)
        await running.get("/health")
        assert (await rest(slow))[:12] == b"HTTP/1.1 429"
    assert refused(service) == {("overloaded",): 1}
    assert answered(service) == {("/v1/embeddings", "429"): 1, ("/health", "200"): 1}


def refused(service: EmbeddingService) -> dict[tuple[str, ...], float]:
    """Return how many requests were refused, by their error code."""
    return counted(service.metrics.rejected)


def answered(service: EmbeddingService) -> dict[tuple[str, ...], float]:
    """Return how many requests were answered, by route and status."""
    return counted(service.metrics.requests)


def counted(counter: Counter) -> dict[tuple[str, ...], float]:
    (family,) = counter.collect()
    return {tuple(sample.labels.values()): sample.value for sample in family.samples if sample.value}


ANSWERED_EARLY: dict[str, bytes] = {
    "no HTTP": b"nonsense\r\n\r\n",
    "no HTTP behind a request": GET + b"nonsense\r\n\r\n",
    "a malformed body": CHUNKED + b"y\r\n",
    "the last request, answered before its body": HEAD + b"connection: close\r\ncontent-length: 9999999\r\n\r\n",
}


@pytest.mark.parametrize("data", ANSWERED_EARLY.values(), ids=ANSWERED_EARLY.keys())
async def test_a_client_that_is_still_sending_gets_the_last_answer_and_is_not_reset(
    application: Application, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_REFUSED_SECONDS", 600)
    async with serving(application, LONG_LIMITS) as running:
        connection = await running.open(data)
        await until(running.has_ended)
        await pour(connection, 1 << 20)
        answer = await asyncio.get_running_loop().sock_recv(connection, 1 << 16)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert await asyncio.get_running_loop().sock_recv(connection, 1) == b""
        connection.close()
        await until(lambda: running.connections == 0)


@pytest.mark.parametrize("data", ANSWERED_EARLY.values(), ids=ANSWERED_EARLY.keys())
async def test_a_client_that_goes_on_sending_behind_the_last_answer_is_closed(
    application: Application, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_REFUSED_SECONDS", 0.1)
    async with serving(application, BRIEF) as running:
        connection = await running.open(data)
        with pytest.raises(ConnectionError):
            await trickle(connection)
        connection.close()


@pytest.mark.promise("embedder-connections-bounded")
@pytest.mark.parametrize("data", ANSWERED_EARLY.values(), ids=ANSWERED_EARLY.keys())
async def test_a_client_that_does_not_close_behind_the_last_answer_takes_no_place_from_another(
    application: Application, data: bytes
) -> None:
    few = replace(LONG_LIMITS, connections=2, held_seconds=0)
    async with serving(application, few) as running, httpx.AsyncClient() as client:
        address = f"http://127.0.0.1:{running.port}"
        assert (await client.get(address)).text == "ok"
        (idle,) = running.server.server_state.connections
        lasting = await running.open(data)
        await until(lambda: [one.ended for one in bounded_connections(running.server.server_state)].count(True) == 1)
        assert await running.get() == "ok"
        assert (await client.get(address)).text == "ok"
        assert idle in running.server.server_state.connections
        lasting.close()


async def test_a_server_that_stops_closes_a_client_that_goes_on_sending_behind_the_last_answer(
    application: Application,
) -> None:
    async with serving(application, LONG_LIMITS) as running:
        connection = await running.open(CHUNKED + b"y\r\n")
        await until(running.has_ended)
        running.server.should_exit = True
        await until(lambda: running.connections == 0)
        connection.close()


@pytest.mark.parametrize(
    "data",
    [ANSWERED_EARLY["the last request, answered before its body"], b"GET /whole HTTP/1.1\r\nhost: x\r\n\r\n"],
    ids=["that it does not close", "that it does not take"],
)
async def test_a_server_that_stops_does_not_wait_for_a_client_behind_an_answer(
    application: Application, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_REFUSED_SECONDS", 0.1)
    application.may_answer.clear()
    async with serving(application, BRIEF, drain_seconds=30) as running:
        connection = await running.open(data, window=4096)
        await until(lambda: application.asked == 1)
        (listening,) = running.server.servers
        running.server.should_exit = True
        await until(lambda: not listening.is_serving())
        application.may_answer.set()
        await until(lambda: running.connections == 0)
        connection.close()


OFFER = b"POST /body HTTP/1.1\r\nhost: x\r\nconnection: Upgrade, close\r\nUpgrade: h2c\r\ncontent-length: 10\r\n\r\n"


@pytest.mark.parametrize("pieces", [[OFFER + b"upgrade: 1"], [OFFER, b"upgrade: 1"]], ids=["at once", "body later"])
async def test_a_request_that_offers_another_protocol_is_answered_as_if_it_did_not(
    application: Application, pieces: list[bytes]
) -> None:
    async with serving(application, LONG_LIMITS) as running:
        connection = await running.open()
        for piece in pieces:
            await asyncio.get_running_loop().sock_sendall(connection, piece)
            await until(lambda: application.asked == 1)
        assert (await rest(connection)).startswith(b"HTTP/1.1 200 OK")
    assert application.body == b"upgrade: 1"


async def test_an_offer_of_another_protocol_in_two_pieces_is_refused_and_no_part_of_it_is_a_request(
    application: Application,
) -> None:
    async with serving(application, LONG_LIMITS) as running:
        connection = await running.open(OFFER[:60])
        await until(lambda: running.arriving() is Step.HEAD)
        await asyncio.get_running_loop().sock_sendall(connection, OFFER[60:] + b"GET / HTTP/1.1\r\n\r\n")
        assert (await rest(connection)).startswith(b"HTTP/1.1 400 ")
    assert application.asked == 0


HOLDING: dict[str, bytes] = {
    "half a head": HEAD,
    "half a body": b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n12345",
    "nothing more": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "an answer not taken": b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n",
    "the last answer not taken": b"GET /whole HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
}


@pytest.mark.promise("embedder-connections-bounded")
@pytest.mark.parametrize("data", HOLDING.values(), ids=HOLDING.keys())
async def test_a_request_is_served_while_others_hold_every_connection(application: Application, data: bytes) -> None:
    async with serving(application, replace(LONG_LIMITS, connections=8, refused=4, held_seconds=0)) as running:
        held = [await running.open(data, window=4096) for _ in range(20)]
        for _ in range(5):
            assert await running.get() == "ok"
        await until(lambda: running.connections <= 8 + 4)
        for connection in held:
            connection.close()


async def test_a_body_that_is_arriving_is_not_closed_for_the_sake_of_heads_that_are_not(
    application: Application,
) -> None:
    async with serving(application, replace(LONG_LIMITS, connections=8, held_seconds=0)) as running:
        upload = await running.open(
            b"POST /body HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 10\r\n\r\n12345"
        )
        await until(lambda: application.asked == 1)
        held = [await running.open(HEAD) for _ in range(50)]
        await asyncio.get_running_loop().sock_sendall(upload, b"67890")
        assert b"ok" in await rest(upload)
        for connection in held:
            connection.close()


async def test_requests_that_are_being_computed_keep_their_connections(application: Application) -> None:
    application.may_answer.clear()
    async with serving(application, replace(LONG_LIMITS, connections=4)) as running:
        asked = [asyncio.create_task(running.get()) for _ in range(4)]
        await until(lambda: application.asked == 4)
        assert (await rest(await running.open(GET))).startswith(b"HTTP/1.1 429 ")
        application.may_answer.set()
        assert await asyncio.gather(*asked) == ["ok"] * 4


@pytest.mark.finding("embedder 9")
async def test_requests_beyond_all_connections_are_answered_by_429_and_none_is_reset(application: Application) -> None:
    """Whether a request has a body or not; a client that is reset takes it for a fault of the network."""
    application.may_answer.clear()
    async with serving(application, replace(LONG_LIMITS, connections=4)) as running:
        asked = [asyncio.create_task(running.get()) for _ in range(4)]
        await until(lambda: application.asked == 4)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{running.port}", timeout=60) as client:
            beyond = [client.post("/", content=b"x" * size) for size in (0, 10, 1 << 20) for _ in range(20)]
            answers = await asyncio.gather(*beyond)
        assert {answer.status_code for answer in answers} == {429}
        assert {answer.headers["retry-after"] for answer in answers} == {"1"}
        assert answers[0].json()["error"]["code"] == "overloaded"
        assert running.refusals == 60
        assert application.asked == 4
        await until(lambda: running.connections == 4)
        application.may_answer.set()
        assert await asyncio.gather(*asked) == ["ok"] * 4
        assert await running.get() == "ok"


BODY = b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n12345"


@pytest.mark.finding("embedder 9")
@pytest.mark.parametrize(("begun", "left"), [(b"", GET), (HEAD, b"\r\n"), (BODY, b"67890")])
async def test_a_slow_client_that_makes_room_is_answered_by_429_and_not_reset(
    application: Application, begun: bytes, left: bytes
) -> None:
    """So it is on a busy machine, where a client connects long before it sends."""
    async with serving(application, replace(LONG_LIMITS, connections=1, held_seconds=0)) as running:
        slow = await running.open(begun)
        await until(lambda: running.connections == 1)
        if begun is BODY:
            await until(lambda: application.asked == 1)
        assert await running.get() == "ok"
        await asyncio.get_running_loop().sock_sendall(slow, left)
        assert (await rest(slow))[:12] == b"HTTP/1.1 429"
        assert running.refusals == (begun is not BODY), "the application counts a request that it has begun"


@pytest.mark.parametrize(
    ("begun", "answered"),
    [(GET + HEAD, False), (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n12345", True)],
    ids=["a second request behind one that is computed", "an answer before the end of the body"],
)
async def test_no_request_gets_a_429_in_the_place_of_its_answer_or_behind_it(
    application: Application, begun: bytes, answered: bool
) -> None:
    """A client would take it for the answer to another request of the connection, so that one is closed."""
    application.may_answer.clear()
    async with serving(application, replace(LONG_LIMITS, connections=1, held_seconds=0)) as running:
        slow = await running.open(begun)
        await until(lambda: application.asked == 1)
        if answered:
            application.may_answer.set()
            assert b" 200 " in await asyncio.get_running_loop().sock_recv(slow, 1 << 16)
        other = await running.open()
        await until(lambda: running.connections == 1 and _is_closed(slow))
        assert b" 429 " not in await rest(slow)
        assert running.refusals == 0
        other.close()


@pytest.mark.promise("embedder-connections-bounded")
async def test_refused_clients_are_few_and_are_closed_if_they_do_not_go(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.may_answer.clear()
    async with serving(application, replace(LONG_LIMITS, connections=1, refused=2, head_seconds=0.5)) as running:
        asked = asyncio.create_task(running.get())
        await until(lambda: application.asked == 1)
        oldest = await running.open(GET)
        await until(lambda: running.refusals == 1)
        refused = [await running.open(data) for data in (b"", GET)]
        await until(lambda: running.connections == 3)
        assert (await rest(oldest))[:12] == b"HTTP/1.1 429"
        monkeypatch.setattr(connections, "_REFUSED_SECONDS", 0.1)
        await until(lambda: running.connections == 1)
        answers = [await rest(one) for one in refused]
        assert [answer[:12] for answer in answers] == [b"", b"HTTP/1.1 429"]
        application.may_answer.set()
        assert await asked == "ok"


async def test_a_server_that_can_no_longer_limit_its_connections_ends_with_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would otherwise serve without any limit of time, and nobody would know."""

    def broken(_state: object) -> list[connections.BoundedProtocol]:
        raise RuntimeError("no connections")

    monkeypatch.setattr(connections, "bounded_connections", broken)
    server = BoundedServer(
        BoundedConfig(Application(asyncio.Event()), "127.0.0.1", 0, BRIEF, 1, on_refusal=lambda _: None)
    )
    async with asyncio.timeout(20):
        with pytest.raises(RuntimeError, match="no connections"):
            await server.serve()
