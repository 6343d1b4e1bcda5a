"""A text that does not reach an embedder in the cluster is not sent again and again by the kernel."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from memory_recall.contrib.chat_client import ChatClient
from memory_recall.embedding import http_client
from memory_recall.embedding.apis import EmbedderApi, EmbedderOptions
from memory_recall.embedding.blocking_client import HttpEmbedder
from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.external_client import ExternalEmbedder
from memory_recall.errors import EmbedderUnavailable
from tests.support.loopback_server import LoopbackServer

TEXT = "x" * 30_000_000  # more than the kernel's buffers hold


class Deaf(LoopbackServer):
    """Takes connections and never reads, so that what is sent stays with the sender."""

    async def listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accepted, self.host, self.port, limit=1)

    async def serve(self, _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()


@pytest.fixture
async def deaf() -> AsyncIterator[Deaf]:
    async with Deaf() as running:
        yield running


async def by_memory_embedder(url: str) -> None:
    async with EmbedderClient(url, "m") as client:
        await client.embed_queries([TEXT])


async def by_third_party_client(url: str) -> None:
    async with ExternalEmbedder(url, "m", options=EmbedderOptions(api=EmbedderApi.OPENAI)) as client:
        await client.embed_queries([TEXT])


async def by_blocking_client(url: str) -> None:
    client = HttpEmbedder(url, "m", timeout=40)
    try:
        await asyncio.to_thread(client.embed_document, TEXT, is_sensitive=False)
    finally:
        client.close()


async def by_language_model(url: str) -> None:
    async with ChatClient(url, "m") as client:
        await client.complete("Name words.", TEXT, most_tokens=9)


@pytest.mark.parametrize("send", [by_memory_embedder, by_third_party_client, by_blocking_client, by_language_model])
async def test_a_connection_ends_once_nothing_has_acknowledged_its_data(
    send: Callable[[str], Awaitable[None]], deaf: Deaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the kernel goes on sending, while the memory may become sensitive before its text arrives."""
    monkeypatch.setattr(http_client, "_UNACKNOWLEDGED_MS", 500)
    async with asyncio.timeout(15):
        with pytest.raises(EmbedderUnavailable):
            await send(f"http://127.0.0.1:{deaf.port}")
