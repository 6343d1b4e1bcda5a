"""A proxy that the environment names is asked for addresses beyond the cluster alone."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from memory_recall.contrib.chat_client import ChatClient
from memory_recall.embedding.apis import EmbedderApi, EmbedderOptions
from memory_recall.embedding.blocking_client import HttpEmbedder
from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.external_client import ExternalEmbedder
from memory_recall.errors import EmbedderUnavailable
from tests.support.loopback_server import LoopbackServer

CANARY = "query-canary"
OTHER_MAKE = EmbedderOptions(api=EmbedderApi.OPENAI)


class Proxy(LoopbackServer):
    """Refuses whatever it is asked for, and keeps what it has heard."""

    heard = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard += await reader.read(65_536)
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()


@pytest.fixture
async def proxy(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    async with Proxy() as running:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{running.port}")
        yield running


async def by_memory_embedder(url: str) -> None:
    async with EmbedderClient(url, "m", query_egress=True) as client:
        await client.embed_query(CANARY)


async def by_third_party_client(url: str) -> None:
    async with ExternalEmbedder(url, "m", options=OTHER_MAKE, query_egress=True) as client:
        await client.embed_query(CANARY)


async def by_blocking_client(url: str) -> None:
    client = HttpEmbedder(url, "m", query_egress=True)
    try:
        await asyncio.to_thread(client.embed_query, CANARY)
    finally:
        client.close()


async def by_language_model(url: str) -> None:
    async with ChatClient(url, "m", query_egress=True) as client:
        await client.complete("Name words.", CANARY, most_tokens=9)


each_client = pytest.mark.parametrize(
    "ask", [by_memory_embedder, by_third_party_client, by_blocking_client, by_language_model]
)


@pytest.fixture
def closed_port() -> AsyncIterator[int]:
    with socket.socket() as reserved:  # without listening, so that connections are refused
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@each_client
async def test_a_text_for_an_address_in_the_cluster_never_goes_to_a_proxy(
    ask: Callable[[str], Awaitable[None]], proxy: Proxy, closed_port: int
) -> None:
    """No consent is asked for such an address, and a proxy reads what is sent without TLS."""
    with pytest.raises(EmbedderUnavailable):
        await ask(f"http://127.0.0.1:{closed_port}")
    assert proxy.heard == b""


@each_client
async def test_an_address_beyond_the_cluster_is_reached_through_the_proxy_which_sees_no_text(
    ask: Callable[[str], Awaitable[None]], proxy: Proxy
) -> None:
    with pytest.raises(EmbedderUnavailable):
        await ask("https://embedder.example.org")
    assert proxy.heard.startswith(b"CONNECT embedder.example.org:443 ")
    assert CANARY.encode() not in proxy.heard
