"""A text that does not reach an embedder in the cluster is not sent again and again by the kernel."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from memory_recall.embedding import http_client
from memory_recall.embedding.apis import EmbedderApi, EmbedderOptions
from memory_recall.embedding.client import AsyncEmbedder, EmbedderClient
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


@pytest.mark.parametrize("make", ["memory-embedder", "another"])
async def test_a_connection_ends_once_nothing_has_acknowledged_its_data(
    make: str, deaf: Deaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request would wait for two minutes, in which the memory may become sensitive before its text arrives."""
    monkeypatch.setattr(http_client, "_UNACKNOWLEDGED_MS", 500)
    url = f"http://127.0.0.1:{deaf.port}"
    client: AsyncEmbedder = (
        EmbedderClient(url, "m")
        if make == "memory-embedder"
        else ExternalEmbedder(url, "m", options=EmbedderOptions(api=EmbedderApi.OPENAI))
    )
    async with asyncio.timeout(30), client:
        with pytest.raises(EmbedderUnavailable):
            await client.embed_queries([TEXT])
