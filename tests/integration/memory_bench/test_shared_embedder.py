"""The benchmark of a shared embedder measures computed vectors, and sends what it was asked to send."""

from memory_bench.shared_embedder.measure import KEYS, ask, fill
from tests.integration.memory_recall.fake_embedder import FakeEmbedder


async def test_no_query_is_asked_twice_since_the_embedder_would_answer_it_from_memory() -> None:
    async with FakeEmbedder() as server:
        alone = await ask(server.url, 0.3, "alone")
        beside = await ask(server.url, 0.3, "beside")
        assert set(server.received.values()) == {1}
        assert len(server.received) == alone.queries + beside.queries


async def test_no_more_documents_are_sent_than_were_asked_for() -> None:
    async with FakeEmbedder() as server:
        assert await fill(server.url, KEYS[2], 20, 5.0) == 20
        assert server.received.total() == 20
