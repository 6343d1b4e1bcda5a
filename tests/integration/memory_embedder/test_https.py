"""The service over HTTPS, as the operator starts it, and our client with a file of the authority."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from devcluster.node.pki import Authority
from memory_recall import EmbedderClient
from memory_recall.errors import EmbedderUnavailable
from tests.integration.memory_embedder.served import Served, launch
from tests.support.serving_pair import ServingFiles
from tests.support.waiting import eventually

MODEL = "all-MiniLM-L6-v2"
EXPIRY = "memory_embedder_certificate_expiry_timestamp_seconds"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ServingFiles:
    return ServingFiles(tmp_path_factory.mktemp("tls") / "tls")


@pytest.fixture
def authority(files: ServingFiles, tmp_path: Path) -> Path:
    """The file of the authority that callers mount."""
    path = tmp_path / "ca.crt"
    trust(path, files.authority)
    return path


@pytest.fixture(scope="module")
def served(f16_file: Path, files: ServingFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that listens on every address, so that one of them is none of the certificate's.

    The tests share it; one that ends a server has its own.
    """
    options = ("--contexts", "2", "--batch-tokens", "128", "--host", "::", "--model", MODEL, *files.options)
    served = launch(f16_file, tmp_path_factory.mktemp("server") / "log", *options)
    yield served
    assert served.stop() == 0


def trust(file: Path, *authorities: Authority) -> None:
    file.write_bytes(b"".join(one.certificate for one in authorities))


def url(served: Served, host: str = "localhost", scheme: str = "https") -> str:
    return f"{scheme}://{host}:{served.url.rpartition(':')[2]}"


def client(served: Served, authority: Path, host: str = "localhost", scheme: str = "https") -> EmbedderClient:
    return EmbedderClient(url(served, host, scheme), MODEL, ca_file=authority)


def metric(served: Served, name: str) -> float:
    lines = httpx.get(f"{served.probe_url}/metrics").text.splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


def shown(served: Served) -> str:
    """The certificate that a new connection is shown."""
    return ssl.get_server_certificate(("127.0.0.1", int(served.url.rpartition(":")[2])))


async def test_only_a_caller_that_can_verify_the_service_sends_it_a_text(
    served: Served, authority: Path, tmp_path: Path
) -> None:
    """Another authority, another host and plain HTTP are refused; the probes stay without TLS on their port."""
    wrong = tmp_path / "wrong.crt"
    wrong.write_bytes(Authority().certificate)
    plain = client(served, authority, scheme="http")
    for refused in (client(served, wrong), client(served, authority, "127.0.0.2"), plain):
        async with refused:
            with pytest.raises(EmbedderUnavailable):
                await refused.embed_query("who is there")
    async with client(served, authority) as verified:
        assert len(await verified.embed_query("who is there")) == 384
    assert metric(served, "memory_embedder_tls_handshake_failures_total") >= 2
    assert await asyncio.to_thread(served.refusal) is None


async def test_certificates_and_their_authority_are_renewed_under_load_and_no_request_fails(
    served: Served, files: ServingFiles, authority: Path
) -> None:
    """Two renewals, a pair that does not fit, and an authority that callers trust before it signs."""
    ended = asyncio.Event()
    answered = [0, 0, 0]  # by each caller

    async def ask(caller: int, *, keeps: bool) -> None:
        while not ended.is_set():
            async with client(served, authority) as asking:
                for number in range(20 if keeps else 1):
                    await asking.embed_query(f"question {number}")
                    answered[caller] += 1

    async def until_answered(more: int) -> None:
        """Wait until each caller has got more answers, so that what it had begun has ended."""
        wanted = [count + more for count in answered]
        async with asyncio.timeout(60):
            while any(count < least for count, least in zip(answered, wanted, strict=True)):
                await asyncio.sleep(0)
                done = [task for task in tasks if task.done()]
                assert not done, [task.exception() for task in done]

    async def until_shown(certificate: bytes) -> None:
        wanted = certificate.decode().split()
        await asyncio.to_thread(
            eventually, lambda: shown(served).split(), wanted.__eq__, what="the renewed one is shown", poll=0.05
        )

    async with client(served, authority) as kept, asyncio.timeout(120):
        await kept.embed_query("before")
        tasks = [asyncio.create_task(ask(caller, keeps=caller == 0)) for caller in range(len(answered))]
        for _ in range(2):
            pair = files.rotate()
            await until_shown(pair.certificate)
        files.write(pair.certificate, Authority().server("localhost").key)
        refused = 'memory_embedder_certificate_refused{fault="key_mismatch"}'
        await asyncio.to_thread(
            eventually, lambda: metric(served, refused), lambda value: value == 1, what="the pair is refused", poll=0.05
        )
        await until_shown(pair.certificate)
        former, following = files.authority, Authority()
        trust(authority, former, following)
        await until_answered(1)
        files.authority = following
        await until_shown(files.rotate().certificate)
        await until_answered(1)  # the server may have taken a caller's connection before, and be about to greet it
        trust(authority, following)
        await until_answered(7)
        ended.set()
        await asyncio.gather(*tasks)
        await kept.embed_query("after")
    assert metric(served, EXPIRY) > 0
    assert "the former certificate stays in use" in await asyncio.to_thread(served.log.read_text)


def test_a_service_whose_key_does_not_fit_waits_for_one_that_does(
    start_server: Callable[..., Served], tmp_path: Path
) -> None:
    """It is not ready, says why, and needs no restart."""
    files = ServingFiles(tmp_path / "tls")
    files.write(files.certificate.read_bytes(), Authority().server("localhost").key)
    served = start_server("--model", MODEL, *files.options)
    eventually(served.refusal, lambda code: code == "configuration", what="readiness names the certificate", poll=0.05)
    assert metric(served, EXPIRY) == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(url(served), verify=files.client())
    files.rotate()
    eventually(served.refusal, lambda code: code is None, what="the service is ready", poll=0.05)
    assert served.process.poll() is None
    assert httpx.get(f"{url(served)}/v1/models", verify=files.client()).status_code == 200


async def test_sigterm_under_load_over_https_answers_every_request_that_was_accepted(
    start_server: Callable[..., Served], files: ServingFiles
) -> None:
    """A connection whose handshake has just ended may be closed before its request was read; the log tells which."""
    served = start_server("--contexts", "2", "--batch-tokens", "128", "--model", MODEL, *files.options)
    statuses: list[int] = []

    async def ask(asking: httpx.AsyncClient, number: int) -> None:
        with contextlib.suppress(httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):  # never accepted
            answer = await asking.post("/v1/embeddings", json={"input": [f"load {number} {part}" for part in range(8)]})
            statuses.append(answer.status_code)

    def logged() -> int:
        return sum('"route": "/v1/embeddings"' in line for line in served.log.read_text().splitlines())

    async with httpx.AsyncClient(base_url=url(served), verify=files.client(), timeout=120) as asking:
        await asking.get("/v1/models")
        tasks = [asyncio.create_task(ask(asking, number)) for number in range(40)]
        async with asyncio.timeout(60):
            while len(statuses) < 5:  # noqa: ASYNC110 -- answers come from another process
                await asyncio.sleep(0.01)
        served.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*tasks)
    assert await asyncio.to_thread(served.process.wait, 60) == 0
    assert set(statuses) <= {200, 503}
    assert '"answered_everything": true' in served.log.read_text()
    assert len(statuses) == logged()
