"""A request that its caller has abandoned may fail without Python printing its exception."""

import asyncio

import httpx
import pytest

from memory_recall import Degraded, EmbedderClient, EmbedderUnavailable
from memory_recall.search.query_embedding import BudgetedQueryEmbedder


@pytest.mark.usefixtures("complaints")
async def test_an_embedder_that_fails_after_the_budget_leaves_no_exception_unretrieved() -> None:
    """As on a connect timeout, which comes seconds after the recall has given up."""
    late, failed = asyncio.Event(), asyncio.Event()

    async def handler(request: httpx.Request) -> httpx.Response:
        await late.wait()
        failed.set()
        raise httpx.ConnectTimeout("too late", request=request)

    async with EmbedderClient("http://embedder:8080", "m", transport=httpx.MockTransport(handler)) as client:
        embedder = BudgetedQueryEmbedder(client, budget=0.01, probe_delays=(3600.0,))
        assert await embedder.embed("q") is Degraded.EMBEDDER_TIMEOUT
        late.set()
        async with asyncio.timeout(30):
            await failed.wait()
        await embedder.close()


async def test_a_caller_who_waits_gets_the_exception_all_the_same() -> None:
    """What is retrieved in the background is not swallowed."""

    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("at once", request=request)

    async with EmbedderClient("http://embedder:8080", "m", transport=httpx.MockTransport(handler)) as client:
        with pytest.raises(EmbedderUnavailable, match="could not be reached"):
            await client.embed_query("q")
