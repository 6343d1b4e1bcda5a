"""Requests to a hosted provider are spaced out so that neither ceiling is exceeded."""

from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from memory_recall.embedding import requests
from memory_recall.embedding.apis import EmbedderApi, EmbedderOptions
from memory_recall.embedding.bounded_answer import BeforeSending
from memory_recall.embedding.external_client import ExternalEmbedder
from memory_recall.embedding.wire import EmbeddedBatch
from memory_recall.errors import EmbedderBusy, EmbedderRejected, EmbedderUnavailable
from memory_recall.indexing import hosted_embedder
from memory_recall.indexing.hosted_embedder import HostedEmbedder, RateLimits
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.indexing.sendable_rows import SendableRows
from memory_recall.postgres.connection import Connection
from tests.support.voyage import VOYAGE_URL


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each wait for a rate limit, while the clock stands still."""
    seconds: list[float] = []

    class Clock:
        @staticmethod
        async def sleep(pause: float) -> None:
            seconds.append(pause)

        @staticmethod
        def monotonic() -> float:
            return 1000.0

    monkeypatch.setattr(requests, "asyncio", Clock)
    monkeypatch.setattr(requests, "time", Clock)
    return seconds


@pytest.mark.parametrize(
    ("limits", "tokens", "apart"),
    [
        (RateLimits(requests=60, tokens=1_000_000), 100, 1.0),
        (RateLimits(requests=6000, tokens=60_000), 2000, 2.0),
    ],
)
async def test_the_stricter_rate_limit_decides_the_interval_of_requests(
    slept: list[float], limits: RateLimits, tokens: int, apart: float
) -> None:
    nobody: Any = None
    client: Any = SimpleNamespace(model="voyage-test", hosted=True)
    embedder = HostedEmbedder(client, limits, sendable=nobody)
    for _ in range(3):
        await embedder._admit(tokens)
    assert slept == pytest.approx([apart, 2 * apart]), "the first goes at once"


class _Provider(ExternalEmbedder):
    """Answers without a server, and takes two texts in a request."""

    def __init__(self) -> None:
        asked = EmbedderOptions(EmbedderApi.VOYAGE, batch=2)
        super().__init__(VOYAGE_URL, "voyage-test", "key", options=asked, dimensions=8, query_egress=True)

    async def _request(
        self,
        texts: Sequence[str],
        input_type: str,  # noqa: ARG002  (nobody is asked)
        before_sending: BeforeSending | None,
    ) -> EmbeddedBatch:
        if before_sending is not None:
            await before_sending()
        return EmbeddedBatch(np.array([[float(text)] * 8 for text in texts], dtype=np.float32), len(texts))


@pytest.mark.parametrize("method", ["embed_rows", "embed_documents", "embed_queries"])
async def test_each_request_of_a_divided_batch_counts_towards_the_rate_limit(slept: list[float], method: str) -> None:
    checked: list[int] = []

    async def look_up(_connection: Connection, rows: Sequence[PendingRow]) -> list[PendingRow]:
        checked.append(len(rows))
        return list(rows)

    async def run(work: Callable[[Any], Awaitable[Any]]) -> Any:
        return await work(None)

    texts = [str(number) for number in range(5)]
    rows = [PendingRow(number, text, "") for number, text in enumerate(texts)]
    async with _Provider() as client:
        embedder = HostedEmbedder(client, RateLimits(60, 1_000_000), sendable=SendableRows(run, look_up))
        if method == "embed_rows":
            sent, answer = await embedder.embed_rows(rows)
            assert (sent, checked) == (rows, [2, 2, 1])
        else:
            answer = await getattr(embedder, method)(texts)
    assert slept == pytest.approx([1.0, 2.0]), "three requests, of which the first goes at once"
    assert answer is not None
    assert (answer.vectors[:, 0].tolist(), answer.tokens) == ([0, 1, 2, 3, 4], 5)


def test_only_transient_failures_are_retried_after_a_bounded_delay() -> None:
    assert hosted_embedder._retry_delay(EmbedderBusy("busy", retry_after=7), longest=60) == 7
    assert hosted_embedder._retry_delay(EmbedderBusy("busy", retry_after=3600), longest=60) == 60
    assert hosted_embedder._retry_delay(EmbedderUnavailable("gone"), longest=60) is True
    assert hosted_embedder._retry_delay(EmbedderRejected("too long"), longest=60) is False
