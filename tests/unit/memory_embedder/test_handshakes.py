"""The port for callers over TLS, on a real socket: who is served, who is refused, and what a silent client costs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from devcluster.node.pki import Authority
from memory_embedder.errors import ErrorKind
from memory_embedder.http.certificate import ServingCertificate
from memory_embedder.http.connections import BoundedConfig, ConnectionLimits
from memory_embedder.http.handshakes import TlsServer
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.telemetry.metrics import Metrics
from tests.support.serving_pair import ServingFiles
from tests.unit.memory_embedder.conftest import until

LONG_LIMITS = ConnectionLimits(connections=100, body_seconds=60, head_seconds=60)
BRIEF = ConnectionLimits(connections=100, body_seconds=60, head_seconds=0.2)


def on_each_loop(test: Callable[[ServingFiles], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on both event loops: the embedder's image has uvloop, whose TLS is its own.

    No exception is left to the event loop meanwhile.
    """

    @pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
    def run(files: ServingFiles, make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        unhandled: list[object] = []
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.get_loop().set_exception_handler(lambda _loop, context: unhandled.append(context))
            runner.run(test(files))
        assert unhandled == []

    return run


async def _ok(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d ok" % len(body)})


@dataclass
class Running:
    """A server over TLS on a port of its own."""

    server: TlsServer
    metrics: Metrics
    port: int
    refusals: int = 0

    @property
    def failures(self) -> float:
        return self.metrics.registry.get_sample_value("memory_embedder_tls_handshake_failures_total") or 0.0

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)

    @property
    def handshakes(self) -> int:
        return len(self.server._handshakes)

    def client(self, context: ssl.SSLContext, scheme: str = "https") -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"{scheme}://localhost:{self.port}", verify=context, timeout=20)

    async def silent(self) -> socket.socket:
        connection = socket.socket()
        connection.settimeout(0)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.port))
        return connection


@asynccontextmanager
async def serving(
    files: ServingFiles, limits: ConnectionLimits = LONG_LIMITS, application: Callable[..., Any] = _ok
) -> AsyncIterator[Running]:
    def count(_kind: ErrorKind) -> None:
        running.refusals += 1

    metrics = Metrics(Lane)
    certificate = ServingCertificate(files.certificate, files.key, metrics)
    config = BoundedConfig(application, "127.0.0.1", 0, limits, drain_seconds=1, on_refusal=count)
    server = TlsServer(config, certificate, metrics)
    listening = socket.create_server(("127.0.0.1", 0))
    running = Running(server, metrics, listening.getsockname()[1])
    task = asyncio.create_task(server.serve([listening]))
    await until(lambda: server.started)
    try:
        yield running
    finally:
        server.should_exit = True
        await task


@pytest.fixture
def files(tmp_path: Path) -> ServingFiles:
    return ServingFiles(tmp_path / "tls")


async def closed(connection: socket.socket) -> bytes:
    """Return what the server sends until it ends the connection."""
    received = b""
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            while data := await asyncio.get_running_loop().sock_recv(connection, 1 << 16):
                received += data
    connection.close()
    return received


@on_each_loop
async def test_a_client_that_trusts_the_authority_is_served_and_others_send_nothing(files: ServingFiles) -> None:
    async with serving(files) as running:
        async with running.client(files.client()) as client:
            assert (await client.post("/", content=b"x" * 300_000)).text == "300000 ok"
        elsewhere = {"sni_hostname": "mem-embedder.elsewhere.svc"}
        for context, extensions in ((files.client(Authority()), {}), (files.client(), elsewhere)):
            async with running.client(context) as client:
                with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                    await client.get("/", extensions=extensions)
        await until(lambda: running.failures >= 1)
        async with running.client(files.client()) as client:
            assert (await client.get("/")).text == "0 ok"


@on_each_loop
async def test_plain_http_is_refused_and_counted(files: ServingFiles) -> None:
    async with serving(files) as running:
        async with running.client(files.client(), scheme="http") as client:
            with pytest.raises(httpx.TransportError):
                await client.get("/")
        await until(lambda: running.failures == 1)
        assert running.connections == 0


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@on_each_loop
async def test_a_client_of_an_older_version_than_1_2_is_refused(files: ServingFiles) -> None:
    context = files.client()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with serving(files) as running, running.client(context) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get("/")


@on_each_loop
async def test_a_client_that_says_nothing_is_cut_off_like_one_that_sends_no_head(files: ServingFiles) -> None:
    async with serving(files, BRIEF) as running:
        silent = await running.silent()
        assert await closed(silent) == b""
        assert running.failures == 1


@on_each_loop
async def test_silent_clients_beyond_the_limit_make_room_for_those_that_speak(
    files: ServingFiles,
) -> None:
    async with serving(files, replace(LONG_LIMITS, handshakes=3)) as running:
        silent = [await running.silent() for _ in range(10)]
        await until(lambda: running.handshakes == 3)
        async with running.client(files.client()) as client:
            assert (await client.get("/")).text == "0 ok"
        for connection in silent[:7]:
            assert await closed(connection) == b""
        for connection in silent[7:]:
            connection.close()


@on_each_loop
async def test_requests_beyond_the_connections_are_answered_by_429_over_tls(files: ServingFiles) -> None:
    limits = ConnectionLimits(connections=1, body_seconds=60, head_seconds=60, held_seconds=60)
    async with serving(files, limits) as running, running.client(files.client()) as first:
        assert (await first.get("/")).status_code == 200
        async with running.client(files.client()) as second:
            refused = await second.get("/")
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
        assert running.refusals == 1
        assert (await first.get("/")).status_code == 200


@on_each_loop
async def test_a_renewed_certificate_is_served_to_new_connections_and_no_request_fails(files: ServingFiles) -> None:
    """Two renewals and a broken pair come while clients ask on kept and on new connections."""
    async with serving(files) as running:
        ended = asyncio.Event()
        answers: list[int] = []

        async def ask(*, kept: bool) -> None:
            while not ended.is_set():
                async with running.client(files.client()) as client:
                    for _ in range(20 if kept else 1):
                        answer = await client.post("/", content=b"text")
                        answers.append(answer.status_code)

        async def shown() -> bytes:
            _, writer = await asyncio.open_connection("localhost", running.port, ssl=files.client())
            certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            return bytes(certificate)

        async with running.client(files.client()) as held, asyncio.timeout(60):
            await held.get("/")
            asking = [asyncio.create_task(ask(kept=kept)) for kept in (True, True, False, False)]
            for _ in range(2):
                pair = files.rotate()
                wanted = ssl.PEM_cert_to_DER_cert(pair.certificate.decode())
                while await shown() != wanted:
                    pass
            files.write(pair.certificate, Authority().server("localhost").key)
            refused = {"fault": "key_mismatch"}
            name = "memory_embedder_certificate_refused"
            await until(lambda: running.metrics.registry.get_sample_value(name, refused) == 1)
            assert await shown() == wanted
            count = len(answers)
            await until(lambda: len(answers) > count + 20)
            ended.set()
            await asyncio.gather(*asking)
            assert (await held.get("/")).status_code == 200
        assert set(answers) == {200}


@on_each_loop
async def test_a_server_that_ends_cuts_off_handshakes_and_answers_what_it_has_accepted(files: ServingFiles) -> None:
    entered, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            entered.set()
            await may_answer.wait()
        await _ok(scope, receive, send)

    async with serving(files, application=slow) as running, running.client(files.client()) as client:
        silent = await running.silent()
        asked = asyncio.create_task(client.get("/"))
        await entered.wait()
        running.server.should_exit = True
        assert await closed(silent) == b""
        may_answer.set()
        assert (await asked).text == "0 ok"
