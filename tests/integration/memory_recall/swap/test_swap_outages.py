"""What is away while a swap measures both models is waited for, and no model is refused for it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from memory_recall.embedding.client import EmbedderClient
from memory_recall.errors import DatabaseUnreachable, EmbedderUnavailable
from memory_recall.retrying import Backoff, Retrying
from memory_recall.swap.gate import Verdict, measure
from memory_recall.swap.process import Measure
from tests.integration.memory_recall.fake_embedder import Answer
from tests.integration.memory_recall.swap.conftest import SwapBench
from tests.integration.memory_recall.swap.test_another_file import QUESTIONS
from tests.integration.memory_recall.swap.test_swap_process import verdict

_ASKED = {question.text for question in QUESTIONS}
_AWAY: Answer = (503, {}, b"{}")


@pytest.fixture
async def gate(swaps: SwapBench, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Measure]:
    """The gate, with questions that both models answer alike. Questions are embedded without retries of their own."""
    monkeypatch.setattr("memory_recall.evaluation.evaluate._EMBEDDING_SECONDS", 0)
    monkeypatch.setattr("memory_recall.swap.process._AWAY", Backoff(first=0.05, longest=0.05, jitter=0))
    async with (
        EmbedderClient(swaps.work.embedder.url, "tiny") as active,
        EmbedderClient(swaps.following.url, "small") as following,
    ):

        async def judge(_swap: object, retrying: Retrying) -> Verdict:
            return await measure(
                swaps.source, "memories", QUESTIONS,
                active=active, following=following, max_drop=1.0, retrying=retrying,
            )  # fmt: skip

        yield judge


@pytest.mark.parametrize("away", ["active", "next"])
async def test_an_embedder_that_is_away_while_models_are_measured_is_waited_for(
    swaps: SwapBench, gate: Measure, away: str
) -> None:
    embedder = swaps.work.embedder if away == "active" else swaps.following
    failures: Iterator[Answer] = iter([_AWAY] * 3)
    embedder.behaviour = lambda texts: next(failures, None) if set(texts) == _ASKED else None
    assert (await swaps.swap(measure=gate)).stage == "flipped"
    assert swaps.work.ear.outages == ["embedder"]
    assert await swaps.problems() == []


async def test_an_embedder_that_stays_away_refuses_no_model_and_the_next_run_goes_on(
    swaps: SwapBench, gate: Measure
) -> None:
    swaps.following.behaviour = lambda texts: _AWAY if set(texts) == _ASKED else None
    plan = swaps.work.plan
    swaps.work.plan = replace(plan, outage_timeout=0)
    with pytest.raises(EmbedderUnavailable):
        await swaps.swap(measure=gate)
    left = await swaps.latest()
    assert left is not None
    assert left.stage == "gating"
    swaps.work.plan, swaps.following.behaviour = plan, lambda _texts: None
    assert (await swaps.swap(measure=gate)).stage == "flipped"
    assert await swaps.problems() == []


async def test_a_run_that_is_stopped_while_it_waits_for_an_embedder_ends_as_any_other(
    swaps: SwapBench, gate: Measure
) -> None:
    """Not with an error, for nothing has failed."""

    def away(texts: list[str]) -> Answer | None:
        if set(texts) != _ASKED:
            return None
        swaps.stop.set()
        return _AWAY

    swaps.following.behaviour = away
    async with asyncio.timeout(60):
        assert (await swaps.swap(measure=gate)).stage == "gating"


async def test_a_database_that_is_lost_while_models_are_measured_refuses_no_model(swaps: SwapBench) -> None:
    lost = iter([True])

    async def judge(_swap: object, _retrying: object) -> Verdict:
        if next(lost, False):
            raise DatabaseUnreachable("The connection was lost.", "")
        return verdict(1)

    assert (await swaps.swap(measure=judge)).stage == "flipped"
    assert swaps.work.ear.outages == ["database"]
