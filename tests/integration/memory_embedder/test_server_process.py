"""The process as a whole: signals, refusals at start, malformed floods."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import signal
import socket
import string
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from memory_embedder.engine.amx import amx_works
from memory_embedder.engine.backends import amx_possible
from memory_embedder.errors import EmbedderError
from memory_embedder.models.model_file import ModelFile
from memory_embedder.models.profiles import DEFAULT_MODEL, find_profile
from memory_embedder.scheduling.plan import plan_load
from memory_embedder.server import load_engine
from memory_embedder.settings import EmbedderSettings
from tests.integration.memory_embedder.served import launch
from tests.support.waiting import eventually

Start = Callable[..., Any]
CANARY = "walrus-CANARY-4242"


async def test_sigterm_under_load_answers_every_accepted_request_and_exits_cleanly(start_server: Start) -> None:
    server = start_server()
    statuses: list[int] = []
    refused = 0

    async def ask(client: httpx.AsyncClient, number: int) -> None:
        nonlocal refused
        kind = "query" if number % 3 == 0 else "document"
        body = {"input": [f"load {number} text {i} " * 2 for i in range(4)], "input_type": kind}
        try:
            answer = await client.post("/v1/embeddings", json=body)
        except httpx.ConnectError:
            refused += 1  # never accepted
        else:
            statuses.append(answer.status_code)
            if answer.status_code == 200:
                assert len(answer.json()["data"]) == 4

    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=httpx.Limits(max_connections=200)) as client:
        tasks = [asyncio.create_task(ask(client, number)) for number in range(60)]
        async with asyncio.timeout(60):
            while len(statuses) < 5:  # noqa: ASYNC110 -- answers come from another process
                await asyncio.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*tasks)
    assert await asyncio.to_thread(server.process.wait, 60) == 0
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) >= 40
    assert '"answered_everything": true' in server.log.read_text()


@pytest.mark.parametrize("logged", ["Listening", "Loading the model", "Model loaded"])
def test_sigterm_while_the_model_is_being_loaded_or_measured_ends_the_process_cleanly(
    f16_file: Path, tmp_path: Path, logged: str
) -> None:
    """Once a line is in the log; a server that was ready before this was seen is started again."""
    for number in range(10):
        server = launch(f16_file, tmp_path / f"log-{number}", until=logged)
        unready = server.refusal() == "loading"
        assert server.stop() == 0
        if unready:
            return
    pytest.fail("the server was always ready before it was asked to end")


def test_after_sigterm_requests_are_answered_on_connections_that_close_until_the_shutdown_delay_ends(
    start_server: Start,
) -> None:
    server = start_server("--shutdown-delay-seconds", "120")
    with httpx.Client(base_url=server.url, timeout=60) as client:
        assert "connection" not in client.post("/v1/embeddings", json={"input": "x"}).headers
        server.process.send_signal(signal.SIGTERM)
        for _ in range(600):
            if httpx.get(f"{server.probe_url}/readyz").status_code == 503:
                break
        answers = [client.post("/v1/embeddings", json={"input": "x"}) for _ in range(3)]
    assert [(one.status_code, one.headers["connection"]) for one in answers] == [(200, "close")] * 3
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--digest", "sha256:" + "0" * 64), "damaged or another model"),
        (("--port", "99999999"), "port"),
    ],
)
def test_a_configuration_that_cannot_work_ends_the_process_with_one_sentence(
    start_server: Start, options: tuple[str, ...], words: str
) -> None:
    server = start_server(*options)
    assert server.process.wait(60) != 0
    text = server.log.read_text()
    assert words in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "bge-large-en-v1.5"}, "not bge-large-en-v1.5"),
        ({"model": "custom", "dimensions": 384, "pooling": "cls", "max_tokens": 256}, "pooling"),
        ({"model": "custom", "dimensions": 384, "pooling": "mean", "max_tokens": 4096}, "512 tokens"),
        ({"dimensions": 1024}, "384"),
    ],
)
def test_a_profile_that_the_file_does_not_have_is_refused(f16_file: Path, options: dict[str, Any], words: str) -> None:
    settings = EmbedderSettings(model_file=f16_file, **options)
    with pytest.raises(EmbedderError, match=words):
        load_engine(plan_load(settings, settings.profile(), cores=2).options)


def test_a_port_that_is_taken_ends_the_process_with_one_sentence(f16_file: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for option in ("--port", "--probe-port"):
            server = launch(f16_file, tmp_path / f"log{option}", option, port)
            assert server.process.wait(60) == 1
            text = server.log.read_text()
            assert f"Port {port} of 127.0.0.1 cannot be opened (Address already in use)" in text
            assert "Traceback" not in text
            assert "Loading the model" not in text


def test_a_requested_gpu_that_is_absent_keeps_the_process_alive_and_unready(start_server: Start) -> None:
    server = start_server("--gpu-layers", "-1")
    assert server.refusal() == "gpu_not_used"
    assert httpx.get(f"{server.probe_url}/healthz").status_code == 200


def malformed_bodies(count: int) -> list[bytes]:
    """A fixed mixture of bad requests; the same at every run."""
    rng = random.Random(7)  # noqa: S311 -- a fixed mixture
    word = "".join(rng.choices(string.ascii_letters, k=12))
    fixed = [
        b"",
        b"null",
        b"[]",
        b"\x00" * 100,
        b"\xff\xfe\xfd",
        b"{" * 50_000,
        b"[" * 200_000,
        b'{"input": NaN}',
        b'{"input": 1e999}',
        b'{"input": ' + b"9" * 5000 + b"}",
        json.dumps({"input": ["a"] * 100_000}).encode(),
        json.dumps({"input": [[["deep"]]]}).encode(),
        b'{"input": "\\ud83d"}',
        b'{"input": "\\u0000"}',
        json.dumps({"input": word * 90_000}).encode(),
        b'{"input": "' + b"x" * (9 << 20) + b'"}',
        json.dumps({"input": "a", "dimensions": -1}).encode(),
        json.dumps({"input": "a", "dimensions": 2**70}).encode(),
        json.dumps({"input": "a", "model": "\u202e" * 100}).encode(),
        json.dumps({"input": [None, True, 3, {}, []]}).encode(),
        json.dumps({"input": CANARY, "encoding_format": CANARY}).encode(),
    ]
    values: list[Any] = [None, True, -1, 3.5, "", " ", [], {}, [[]], [1], ["a", 1], {"a": 1}, "x" * 300, "query"]
    fields = ["input", "model", "encoding_format", "dimensions", "input_type", "truncate"]
    mixed = [
        json.dumps({field: rng.choice(values) for field in rng.sample(fields, rng.randint(1, 6))}).encode()
        for _ in range(count - len(fixed))
    ]
    return fixed + mixed


async def test_a_flood_with_a_third_malformed_gets_no_5xx_and_leaks_neither_memory_nor_text(server: Any) -> None:
    bad = malformed_bodies(60)
    good = [json.dumps({"input": f"{CANARY} number {i}"}).encode() for i in range(140)]
    bodies = bad + good
    random.Random(3).shuffle(bodies)  # noqa: S311 -- a fixed order
    process = psutil.Process(server.process.pid)
    statuses: list[int] = []

    async def run(round_bodies: list[bytes]) -> None:
        gate = asyncio.Semaphore(8)
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:

            async def one(body: bytes) -> None:
                async with gate:
                    answer = await client.post("/v1/embeddings", content=body)
                    statuses.append(answer.status_code)
                    assert CANARY not in answer.text
                    if answer.status_code != 200:
                        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}

            await asyncio.gather(*(one(body) for body in round_bodies))

    await run(bodies)  # the first round fills every pool and cache
    before = process.memory_info().rss
    await run(bodies)
    after = process.memory_info().rss
    assert not [status for status in statuses if status >= 500]
    assert statuses.count(200) >= 2 * len(good)
    assert after <= before * 1.05
    assert CANARY not in server.log.read_text()
    async with httpx.AsyncClient(base_url=server.probe_url) as probe:
        assert CANARY not in (await probe.get("/metrics")).text


def test_bytes_that_are_not_http_do_not_disturb_the_server(server: Any) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    for data in (
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        CANARY.encode() + b" / HTTP/1.1\r\n\r\n",
        b"POST /v1/embeddings HTTP/1.1\r\n",
    ):
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
            raw.recv(4096)
    assert httpx.get(f"{server.probe_url}/healthz").status_code == 200
    assert CANARY not in server.log.read_text()


@pytest.mark.parametrize(("body", "code"), [(bytes(30 << 20), "too_large"), ([b"x"] * 99_999, "malformed_http")])
def test_a_client_that_closes_behind_its_request_reads_why_it_was_refused_while_it_was_sending(
    server: Any, body: Any, code: str
) -> None:
    """Python's own client sends all of a body, at once or in pieces, before it reads anything."""
    with closing(HTTPConnection(server.url.removeprefix("http://"), timeout=60)) as connection:
        connection.request("POST", "/v1/embeddings", body, {"connection": "close"})
        assert json.load(connection.getresponse())["error"]["code"] == code


def test_quantised_weights_run_on_amx_kernels_only_where_those_work_and_metrics_say_which_run(
    q8_file: Path, start_server: Start
) -> None:
    quantised = start_server("--model-file", str(q8_file))
    kernels = httpx.get(f"{quantised.probe_url}/metrics").text
    assert httpx.post(f"{quantised.url}/v1/embeddings", json={"input": "x " * 100}, timeout=60).status_code == 200
    line = next(line for line in kernels.splitlines() if line.startswith("memory_embedder_device_info{"))
    with ModelFile(q8_file) as file:
        works = amx_possible() and amx_works(file, find_profile(DEFAULT_MODEL))
    assert ('kernels="sapphirerapids"' in line) == works
    assert 'device="cpu"' in line


@pytest.mark.promise("probe-port-apart")
@pytest.mark.finding("M2")
def test_callers_find_no_probes_or_metrics_on_their_port_and_probers_no_embeddings_on_theirs(server: Any) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        assert httpx.get(f"{server.url}{path}").status_code == 404
        assert httpx.get(f"{server.probe_url}{path}").status_code == 200
    for path in ("/v1/models", "/openapi.json"):
        assert httpx.get(f"{server.probe_url}{path}").status_code == 404
    assert httpx.post(f"{server.probe_url}/v1/embeddings", json={"input": "x"}).status_code == 404


@pytest.mark.promise("embedder-connections-bounded")
@pytest.mark.finding("M3")
def test_half_sent_requests_keep_neither_the_kubelet_nor_a_caller_out_of_a_process_with_few_files(
    start_server: Start,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        server = start_server()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    port = int(server.url.rpartition(":")[2])
    half = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n"

    def served() -> bool:
        """Until one of the others has held its connection for a second, a request is told to come again."""
        answer = httpx.post(f"{server.url}/v1/embeddings", json={"input": "x"}, timeout=60)
        assert answer.status_code in {200, 429}
        return answer.status_code == 200

    with ExitStack() as held:
        for number in range(400):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            with suppress(ConnectionError):  # the oldest are closed to make room
                connection.sendall(half + (b"\r\n" if number % 2 else b""))
        assert httpx.get(f"{server.probe_url}/healthz").status_code == 200
        assert httpx.get(f"{server.probe_url}/readyz").status_code == 200
        eventually(served, bool, what="a request that is served", seconds=20)
