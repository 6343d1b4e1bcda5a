"""A failing embedder costs recalls one time budget; then they are degraded at once until it recovers."""

import asyncio
import inspect
import re
from collections.abc import Sequence
from types import ModuleType

import httpx
import numpy as np
import pytest

from memory_recall import EmbedderClient, FollowingEmbedder
from memory_recall.contrib import second_stage
from memory_recall.embedding.wire import EmbeddedBatch
from memory_recall.errors import (
    DimensionMismatch,
    EmbedderBusy,
    EmbedderRejected,
    EmbedderUnauthorized,
    EmbedderUnavailable,
    MemoryIndexError,
    ModelMismatch,
)
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.search import query_embedding
from memory_recall.search.query import EmbeddedQuery
from memory_recall.search.query_embedding import BudgetedQueryEmbedder
from memory_recall.search.result import Degraded

SOON = (0.0,)


class Scripted:
    """An embedder that does what the test says, one step a call; the last step repeats."""

    model = "tiny"

    def __init__(self, *steps: Sequence[float] | Exception | None) -> None:
        self.steps = list(steps)
        self.texts: list[str] = []

    @property
    def of_callers(self) -> list[str]:
        """The texts that are no probes."""
        return [text for text in self.texts if not text.startswith("ping ")]

    async def embed_query(self, text: str) -> Sequence[float]:
        self.texts.append(text)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if step is None:
            await asyncio.Event().wait()
        if isinstance(step, Exception):
            raise step
        assert step is not None
        return step


class Clock:
    """The event loop's time, which stands still until a test moves it."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    async def forward(self, seconds: float) -> None:
        """Let time pass, and what is due by then and what follows from it happen."""
        self.now += seconds
        for _ in range(50):  # turns of the loop, several times as many as anything here takes
            await asyncio.sleep(0)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the test's event loop, so that no budget ends while the machine stands still."""
    loop = asyncio.get_running_loop()
    moved = Clock(loop.time())
    monkeypatch.setattr(loop, "time", moved)
    return moved


async def recovered(semantics: BudgetedQueryEmbedder) -> None:
    """Wait until the background task has found that the embedder answers again."""
    async with asyncio.timeout(30):
        while semantics.circuit_open:  # noqa: ASYNC110 - nothing tells when it closes
            await asyncio.sleep(0.01)


async def test_a_vector_carries_its_model() -> None:
    """The statement compares it with the model of the table's vectors."""
    assert await BudgetedQueryEmbedder(Scripted([1.0, 0.0])).embed("q") == EmbeddedQuery([1.0, 0.0], "tiny")


async def test_a_vector_carries_the_file_of_the_model_where_the_embedder_names_it() -> None:
    """Two files of one name make vectors that cannot be compared."""

    class Naming(Scripted):
        async def embed_query_batch(self, text: str) -> EmbeddedBatch:
            return EmbeddedBatch(np.array([await self.embed_query(text)], dtype=np.float32), 1, "sha256:aa")

    embedded = await BudgetedQueryEmbedder(Naming([1.0, 0.0])).embed("q")
    assert embedded == EmbeddedQuery([1.0, 0.0], "tiny", "sha256:aa")


@pytest.mark.parametrize(
    ("module", "protocol"), [(query_embedding, query_embedding.QueryEmbedder), (second_stage, second_stage.Reranker)]
)
def test_each_attribute_that_is_read_of_a_caller_s_object_is_named_to_whoever_writes_it(
    module: ModuleType, protocol: type
) -> None:
    """One that keeps sensitive queries from leaving the cluster, above all."""
    read = set(re.findall(r'getattr\([\w.]+, "(\w+)"', inspect.getsource(module)))
    assert "hosted" in read
    assert all(f"`{name}`" in (protocol.__doc__ or "") for name in read)


async def test_without_an_embedder_there_is_a_reason_and_no_error() -> None:
    """A deployment without one is an ordinary deployment."""
    assert await BudgetedQueryEmbedder(None).embed("q") is Degraded.NO_EMBEDDER


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (EmbedderUnavailable("gone"), Degraded.EMBEDDER_FAILED),
        (RuntimeError("anything at all"), Degraded.EMBEDDER_FAILED),
        (None, Degraded.EMBEDDER_TIMEOUT),
    ],
)
async def test_after_the_first_failure_recalls_do_not_call_the_embedder(
    step: Exception | None, reason: Degraded
) -> None:
    """Only the first recall waits for the budget; later ones are degraded at once."""
    embedder = Scripted(step)
    semantics = BudgetedQueryEmbedder(embedder, budget=0.02, probe_delays=(3600.0,))
    assert await semantics.embed("first") is reason
    assert await semantics.embed("second") is Degraded.CIRCUIT_OPEN
    assert embedder.of_callers == ["first"]
    await semantics.close()


async def test_a_query_that_is_late_by_itself_leaves_others_without_vectors_only_until_the_embedder_answers() -> None:
    """A prompt of 50,000 characters takes longer than the budget, and the embedder is as well as before."""
    embedder = Scripted(None, [1.0])
    semantics = BudgetedQueryEmbedder(embedder, budget=0.02, probe_delays=(3600.0,))
    assert await semantics.embed("a very long prompt") is Degraded.EMBEDDER_TIMEOUT
    await recovered(semantics)
    assert isinstance(await semantics.embed("the next caller's"), EmbeddedQuery)
    await semantics.close()


async def test_a_refused_key_stays_the_reason_until_a_probe_finds_another_one() -> None:
    """A person has to correct the key, so later recalls must not hide it behind the open circuit."""
    refused = EmbedderUnauthorized("wrong key")
    embedder = Scripted(refused, refused, EmbedderUnavailable("gone"), refused, [1.0])
    semantics = BudgetedQueryEmbedder(embedder, probe_delays=(3600.0,))
    assert await semantics.embed("first") is Degraded.EMBEDDER_UNAUTHORIZED
    assert await semantics.embed("second") is Degraded.EMBEDDER_UNAUTHORIZED
    assert embedder.texts == ["first"]
    await semantics.close()
    seen = []
    semantics = BudgetedQueryEmbedder(embedder, probe_delays=SOON)
    async with asyncio.timeout(30):
        while not isinstance(outcome := await semantics.embed("later"), EmbeddedQuery):
            seen.append(outcome)
            await asyncio.sleep(0)
    assert set(seen) == {Degraded.EMBEDDER_UNAUTHORIZED, Degraded.CIRCUIT_OPEN}, (
        "while it was away, that was the reason"
    )
    await semantics.close()


async def test_a_recovered_embedder_is_detected_by_probes_alone() -> None:
    """A background task sends a text of its own; users' queries are not used as probes."""
    embedder = Scripted(EmbedderUnavailable("gone"), EmbedderUnavailable("gone"), [1.0])
    semantics = BudgetedQueryEmbedder(embedder, probe_delays=SOON)
    assert await semantics.embed("first") is Degraded.EMBEDDER_FAILED
    await recovered(semantics)
    assert [text.split()[0] for text in embedder.texts] == ["first", "ping", "ping"]
    assert len(set(embedder.texts)) == 3, "an embedder may keep the vectors of texts that it was asked before"
    assert await semantics.embed("later") == EmbeddedQuery([1.0], "tiny")


async def test_a_refused_query_does_not_open_the_circuit() -> None:
    """A refusal concerns one text; the next one may be accepted."""
    semantics = BudgetedQueryEmbedder(Scripted(EmbedderRejected("too long"), [1.0]))
    assert await semantics.embed("bad") is Degraded.EMBEDDER_REFUSED
    assert isinstance(await semantics.embed("good"), EmbeddedQuery)


@pytest.mark.parametrize("error", [ModelMismatch("another"), DimensionMismatch("longer")])
async def test_an_embedder_of_another_model_gives_its_own_reason_and_does_not_open_the_circuit(
    error: MemoryIndexError,
) -> None:
    """It works; by the reason a recall turns to the embedder of the active model."""
    semantics = BudgetedQueryEmbedder(Scripted(error, [1.0]), probe_delays=(3600.0,))
    assert (await semantics.embed("asked")) == type(error).reason
    assert isinstance(await semantics.embed("asked again"), EmbeddedQuery)


async def test_an_embedder_that_comes_back_with_another_model_closes_the_circuit_and_gives_that_reason() -> None:
    embedder = Scripted(EmbedderUnavailable("gone"), DimensionMismatch("longer"), DimensionMismatch("longer"))
    semantics = BudgetedQueryEmbedder(embedder, probe_delays=(0.01, 3600.0))
    assert await semantics.embed("asked") is Degraded.EMBEDDER_FAILED
    async with asyncio.timeout(20):
        while semantics.circuit_open:  # noqa: ASYNC110  (the probe closes it)
            await asyncio.sleep(0.01)
    assert await semantics.embed("asked again") is Degraded.DIMENSION_MISMATCH
    await semantics.close()


async def test_a_late_answer_while_others_are_answered_does_not_open_the_circuit(clock: Clock) -> None:
    """The embedder is asked more than it answers, so what fits is still asked."""
    embedder = Scripted(None, [1.0])
    semantics = BudgetedQueryEmbedder(embedder, budget=0.2, probe_delays=(3600.0,))
    late = asyncio.create_task(semantics.embed("late"))
    await clock.forward(0)
    assert isinstance(await semantics.embed("meanwhile"), EmbeddedQuery)
    await clock.forward(0.2)
    assert await late is Degraded.EMBEDDER_TIMEOUT
    assert isinstance(await semantics.embed("afterwards"), EmbeddedQuery)


async def test_more_queries_than_may_be_under_way_are_not_sent(clock: Clock) -> None:
    """They are degraded at once, also while nobody waits for those any more, since the embedder computes them yet."""
    embedder = Scripted(*[None] * 64, [1.0])
    semantics = BudgetedQueryEmbedder(embedder, budget=0.1, probe_delays=(3600.0,))
    stuck = [asyncio.create_task(semantics.embed(str(number))) for number in range(64)]
    await clock.forward(0)
    assert await semantics.embed("one too many") is Degraded.EMBEDDER_BUSY
    stuck[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await stuck[0]
    assert await semantics.embed("still one too many") is Degraded.EMBEDDER_BUSY
    await clock.forward(0.1)
    assert await asyncio.gather(*stuck[1:]) == [Degraded.EMBEDDER_TIMEOUT] * 63
    assert embedder.of_callers == [str(number) for number in range(64)]
    await clock.forward(0)
    assert not semantics.circuit_open
    assert isinstance(await semantics.embed("after the embedder has answered again"), EmbeddedQuery)
    await semantics.close()


async def test_a_full_queue_is_its_own_reason() -> None:
    """A person who reads it adds embedders, and does not look for a fault."""
    embedder = Scripted(EmbedderBusy("queue full"))
    semantics = BudgetedQueryEmbedder(embedder, probe_delays=(3600.0,))
    assert await semantics.embed("first") is Degraded.EMBEDDER_BUSY
    assert await semantics.embed("second") is Degraded.EMBEDDER_BUSY
    assert embedder.texts == ["first"], "an embedder that is full is not asked again at once"
    await semantics.close()


async def test_a_full_queue_with_queries_under_way_does_not_open_the_circuit() -> None:
    """They are being computed, and so the queue has room again soon."""
    embedder = Scripted(None, EmbedderBusy("queue full"), [1.0])
    semantics = BudgetedQueryEmbedder(embedder, budget=60)
    waiting = asyncio.create_task(semantics.embed("waiting"))
    await asyncio.sleep(0.01)
    assert await semantics.embed("first") is Degraded.EMBEDDER_BUSY
    assert not semantics.circuit_open
    await semantics.close()
    assert await waiting is Degraded.EMBEDDER_FAILED


async def test_where_two_embedders_of_the_model_fail_the_circuit_stays_open() -> None:
    """Each is tried once; then recalls do not wait for either in turn, and the background task finds which recovers."""
    recorded = RecordedModel(1, "m", None, 8, embedder_url="http://127.0.0.1:9")
    embedder = FollowingEmbedder("http://127.0.0.1:10", "m")
    semantics = BudgetedQueryEmbedder(embedder, budget=10, probe_delays=(3600.0,))
    followed = []
    for _ in range(2):
        used = semantics.current
        assert await semantics.embed("q") is Degraded.EMBEDDER_FAILED
        followed.append(semantics.follow(recorded, used, Degraded.EMBEDDER_FAILED))
    assert followed == [True, False]
    for _ in range(3):
        used = semantics.current
        assert await semantics.embed("q") is Degraded.CIRCUIT_OPEN
        assert not semantics.follow(recorded, used, Degraded.CIRCUIT_OPEN)
    await semantics.close()
    await embedder.close()


async def test_a_failure_of_an_embedder_that_was_left_meanwhile_does_not_keep_recalls_from_the_next_one() -> None:
    """During a swap, queries may still be under way to the former model's embedder when others go to the next one's."""
    recorded = RecordedModel(1, "m", None, 8, embedder_url="http://127.0.0.1:9")
    embedder = FollowingEmbedder("http://127.0.0.1:10", "m")
    semantics = BudgetedQueryEmbedder(embedder, budget=10, probe_delays=(3600.0,))
    used = semantics.current
    under_way = asyncio.create_task(semantics.embed("q"))
    await asyncio.sleep(0)
    assert semantics.follow(recorded, used, Degraded.MODEL_MISMATCH)
    assert await under_way is Degraded.EMBEDDER_FAILED
    assert not semantics.circuit_open
    await semantics.close()
    await embedder.close()


async def test_closing_ends_the_background_task() -> None:
    """Nothing is left behind when the process ends."""
    semantics = BudgetedQueryEmbedder(Scripted(EmbedderUnavailable("gone")), probe_delays=(3600.0,))
    await semantics.embed("first")
    await semantics.close()
    assert not semantics.circuit_open


async def test_an_embedder_that_answers_a_cancellation_with_an_error_of_its_own_does_not_delay_the_close() -> None:
    """A client may turn every interruption into an error of its connection; the task that probes ends all the same."""
    probing = asyncio.Event()

    class Translating(Scripted):
        async def embed_query(self, text: str) -> Sequence[float]:
            if self.texts:
                probing.set()
            try:
                return await super().embed_query(text)
            except asyncio.CancelledError:
                raise ConnectionError("interrupted") from None

    embedder = BudgetedQueryEmbedder(Translating(ConnectionError(), None), budget=60, probe_delays=SOON)
    async with asyncio.timeout(30):
        assert await embedder.embed("q") is Degraded.EMBEDDER_FAILED
        await probing.wait()
        await embedder.close()


@pytest.mark.usefixtures("complaints")
async def test_an_embedder_that_fails_after_the_budget_leaves_no_exception_unretrieved(clock: Clock) -> None:
    """As on a connect timeout, which comes seconds after the recall has given up."""
    late, failed = asyncio.Event(), asyncio.Event()

    async def handler(request: httpx.Request) -> httpx.Response:
        await late.wait()
        failed.set()
        raise httpx.ConnectTimeout("too late", request=request)

    async with EmbedderClient("http://embedder:8080", "m", transport=httpx.MockTransport(handler)) as client:
        embedder = BudgetedQueryEmbedder(client, budget=0.01, probe_delays=(3600.0,))
        asking = asyncio.create_task(embedder.embed("q"))
        await clock.forward(0)
        await clock.forward(0.01)
        assert await asking is Degraded.EMBEDDER_TIMEOUT
        late.set()
        await clock.forward(0)
        assert failed.is_set()
        await embedder.close()


async def test_a_caller_who_waits_gets_the_exception_all_the_same() -> None:
    """What is retrieved in the background is not swallowed."""

    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("at once", request=request)

    async with EmbedderClient("http://embedder:8080", "m", transport=httpx.MockTransport(handler)) as client:
        with pytest.raises(EmbedderUnavailable, match="could not be reached"):
            await client.embed_query("q")
