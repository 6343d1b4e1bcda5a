"""Requests to a hosted provider are spaced out so that neither ceiling is exceeded."""

from types import SimpleNamespace
from typing import Any

import pytest

from memory_recall.errors import EmbedderBusy, EmbedderRejected, EmbedderUnavailable
from memory_recall.indexing import hosted_embedder
from memory_recall.indexing.hosted_embedder import HostedEmbedder, RateLimits


@pytest.mark.parametrize(
    ("limits", "tokens", "apart"),
    [
        (RateLimits(requests=60, tokens=1_000_000), 100, 1.0),
        (RateLimits(requests=6000, tokens=60_000), 2000, 2.0),
    ],
)
async def test_the_stricter_rate_limit_decides_the_interval_of_requests(
    monkeypatch: pytest.MonkeyPatch, limits: RateLimits, tokens: int, apart: float
) -> None:
    slept: list[float] = []

    class Clock:
        @staticmethod
        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        @staticmethod
        def monotonic() -> float:
            return 1000.0

    monkeypatch.setattr(hosted_embedder, "asyncio", Clock)
    monkeypatch.setattr(hosted_embedder, "time", Clock)
    nobody: Any = None
    client: Any = SimpleNamespace(model="voyage-test")
    embedder = HostedEmbedder(client, limits, egress_filter=nobody)
    for _ in range(3):
        await embedder._admit(tokens)
    assert slept == pytest.approx([apart, 2 * apart]), "the first goes at once"


def test_only_transient_failures_are_retried_after_a_bounded_delay() -> None:
    assert hosted_embedder._retry_delay(EmbedderBusy("busy", retry_after=7), longest=60) == 7
    assert hosted_embedder._retry_delay(EmbedderBusy("busy", retry_after=3600), longest=60) == 60
    assert hosted_embedder._retry_delay(EmbedderUnavailable("gone"), longest=60) is True
    assert hosted_embedder._retry_delay(EmbedderRejected("too long"), longest=60) is False
