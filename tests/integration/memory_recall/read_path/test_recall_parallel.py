"""A recall of a large table runs its legs on two connections, and gives what one statement would have given."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from memory_recall import asking
from memory_recall.errors import DatabaseUnreachable
from memory_recall.fusion import Fusion
from memory_recall.query import Degraded
from memory_recall.recall import HybridRecall
from memory_recall.store import lexical_bm25, recall_parallel
from memory_recall.temporal import Period
from tests.integration.memory_recall.read_path.test_recall_degrade import fill
from tests.integration.memory_recall.read_path.vectors import axis

MASKED = "[SENSITIVE - use secret_get(id={})]"
LAST_WEEK = Period(datetime.now(UTC) - timedelta(days=7), datetime.now(UTC))
RECALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "second page": {"limit": 7, "offset": 20},
    "deep": {"limit": 60},
    "by importance": {"sort_by": "importance"},
    "one user": {"user_id": "ana"},
    "category and time": {"category": "facts", "since": datetime(2020, 1, 1, tzinfo=UTC)},
    "reciprocal ranks": {"fusion": Fusion(method="rrf")},
    "scaled by the list": {"fusion": Fusion(lexical_scale="list", importance=False)},
}


class Fetched:
    """What the parts of a recall are sent on, and a moment before the last of them to change the database in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sessions: list[int] = []
        self.before_fusion: Callable[[], Awaitable[object]] | None = None
        self.before_words: Callable[[Any], Awaitable[object]] | None = None
        self.meaning = asyncio.Event()  # the dense leg has answered
        self._fetch = asking._fetch
        monkeypatch.setattr(asking, "_fetch", self)
        monkeypatch.setattr(recall_parallel, "WORTH_SPLITTING", 0)

    async def __call__(self, connection: Any, sent: Any, readiness: Any) -> Sequence[Any]:
        self.sessions.append(connection.get_server_pid())
        if "given AS" in sent[0] and self.before_fusion is not None:
            await self.before_fusion()
        if "AS weights" in sent[0] and self.before_words is not None:
            await self.before_words(connection)
        rows = await self._fetch(connection, sent, readiness)
        if "ORDER BY dense_rank), '{}') AS ids" in sent[0]:
            self.meaning.set()
        return rows

    @property
    def split(self) -> bool:
        """Whether the recalls so far took three parts on two sessions each."""
        return len(self.sessions) % 3 == 0 and len(set(self.sessions)) == 2


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Fetched:
    """Every recall is worth splitting, and is watched."""
    return Fetched(monkeypatch)


@pytest.fixture
async def filled(memories: Any) -> Any:
    """Rows whose words, vectors and importance disagree, some without a vector, sensitive, or another user's.

    One is near in meaning and holds a word that so many others hold more of that the lexical leg does not score it.
    """
    await fill(memories)
    await memories.pool.execute("INSERT INTO memories (content) SELECT 'ripe tomatoes' FROM generate_series(1, 120)")
    await memories.add(f"tomatoes {'and much else ' * 30}", vector=axis(1.0, 0.01))
    for number in range(6):
        await memories.add(f"zfs scrub without a vector {number}")
        await memories.add(f"zfs password {number} is hunter2", sensitive=True)
        await memories.add(f"scrub the pool {number}", vector=axis(1.0, number / 3), user_id="ana")
    await memories.pool.execute("ANALYZE memories")
    async with memories.pool.acquire(), memories.pool.acquire():
        pass  # so that two connections are idle
    return memories


def judged(result: Any) -> list[tuple[Any, ...]]:
    return [
        (one.id, one.content, pytest.approx(one.rank), one.evidence.lexical_rank, one.evidence.dense_rank)
        for one in result.memories
    ]


@pytest.fixture(params=["counted", "estimated"])
def frequencies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which a word's frequency is known."""
    if request.param == "estimated":
        monkeypatch.setattr(lexical_bm25, "SMALL_TABLE", 0)


@pytest.mark.parametrize("options", RECALLS.values(), ids=RECALLS)
@pytest.mark.parametrize("query", ["zfs scrub password", "the of", "tomatoes"])
@pytest.mark.usefixtures("frequencies")
async def test_the_answer_is_that_of_one_statement(
    filled: Any, embedder: Any, fetched: Fetched, query: str, options: Any
) -> None:
    """The same rows in the same order with the same scores."""
    one = await filled.recalling(embedder, parallel_legs=False).recall(query, **options)
    assert len(fetched.sessions) == 1
    fetched.sessions.clear()
    two = await filled.recalling(embedder).recall(query, **options)
    assert fetched.split
    assert two.reason is None
    assert judged(two) == judged(one)
    assert "hunter2" not in repr(two)


async def test_a_time_that_the_query_names_counts_as_much(filled: Any, embedder: Any, fetched: Fetched) -> None:
    one, two = (
        filled.recalling(embedder, parallel_legs=parallel, temporal=lambda *_: LAST_WEEK) for parallel in (False, True)
    )
    assert judged(await two.recall("zfs scrub")) == judged(await one.recall("zfs scrub"))
    assert len(fetched.sessions) == 4


@pytest.mark.parametrize(
    "change", ["deleted_at = now()", "user_id = 'bo'"], ids=["deleted", "out of the filter's reach"]
)
async def test_what_goes_between_legs_and_fusion_is_left_out(
    filled: Any, embedder: Any, fetched: Fetched, change: str
) -> None:
    """The last part does not trust what it was given."""
    gone = await filled.add("zfs scrub", vector=axis(1.0), user_id="ana", importance=1.0)
    recall = filled.recalling(embedder)
    assert (await recall.recall("zfs scrub", user_id="ana")).ids[0] == gone

    async def go() -> None:
        await filled.pool.execute(f"UPDATE memories SET {change} WHERE id = $1", gone)

    fetched.before_fusion = go
    result = await recall.recall("zfs scrub", user_id="ana")
    assert gone not in result.ids
    assert result.ids
    assert fetched.split


async def test_what_becomes_sensitive_between_legs_and_fusion_is_masked(
    filled: Any, embedder: Any, fetched: Fetched
) -> None:
    """Its words may have been searched before it became a secret; they do not leave the database after."""
    secret = await filled.add("zfs scrub hunter3", vector=axis(1.0), importance=1.0)

    async def hide() -> None:
        await filled.pool.execute("UPDATE memories SET is_sensitive = true WHERE id = $1", secret)

    fetched.before_fusion = hide
    result = await filled.recalling(embedder).recall("zfs scrub")
    assert "hunter3" not in repr(result)
    assert {one.id: one.content for one in result.memories}[secret] == MASKED.format(secret)


@pytest.mark.parametrize("late", [False, True], ids=["before", "between legs and fusion"])
async def test_another_model_s_vectors_take_no_part(filled: Any, embedder: Any, fetched: Fetched, late: bool) -> None:
    """A swap leaves the lexical order, at whichever moment it comes."""
    words = (await filled.recalling(embedder).recall("zfs scrub", mode="lexical")).ids
    fetched.sessions.clear()

    async def swap() -> None:
        await filled.pool.execute("UPDATE memory_index_models SET name = 'another'")

    if late:
        fetched.before_fusion = swap
    else:
        await swap()
    result = await filled.recalling(embedder).recall("zfs scrub")
    assert result.reason is Degraded.MODEL_MISMATCH
    assert result.ids == words
    assert fetched.split


async def test_cosines_of_another_model_s_vectors_take_no_part(filled: Any, embedder: Any, fetched: Fetched) -> None:
    """Not even where the lexical leg alone saw the other model, and the first is active again when both are fused."""
    words = (await filled.recalling(embedder).recall("zfs scrub", mode="lexical")).ids

    async def swap(name: str) -> None:
        await filled.pool.execute("UPDATE memory_index_models SET name = $1", name)

    async def swap_after_meaning(_: Any) -> None:
        await fetched.meaning.wait()
        await swap("another")

    active = await filled.pool.fetchval("SELECT name FROM memory_index_models")
    fetched.before_words, fetched.before_fusion = swap_after_meaning, lambda: swap(active)
    result = await filled.recalling(embedder).recall("zfs scrub")
    assert result.reason is Degraded.MODEL_MISMATCH
    assert result.ids == words


@pytest.mark.parametrize("before", ["both legs", "words"])
async def test_a_leg_that_is_refused_for_its_vectors_leaves_the_words(
    filled: Any, embedder: Any, fetched: Fetched, before: str
) -> None:
    """The schema changed under a recall that had looked at it before."""
    recall = filled.recalling(embedder)
    words = (await recall.recall("zfs scrub", mode="lexical")).ids

    async def rename(_: Any = None) -> None:
        fetched.before_words = None
        await fetched.meaning.wait()
        await filled.pool.execute("ALTER TABLE memories RENAME COLUMN embedding TO gone")

    if before == "words":
        fetched.before_words = rename
    else:
        fetched.meaning.set()
        await rename()
    result = await recall.recall("zfs scrub")
    assert result.reason is Degraded.DENSE_FAILED
    assert result.ids == words


async def test_vectors_that_go_after_the_legs_are_not_missed(filled: Any, embedder: Any, fetched: Fetched) -> None:
    """The answer is that of the moment at which the legs ran: fusion reads no vector."""
    recall = filled.recalling(embedder)
    expected = judged(await recall.recall("zfs scrub"))

    async def rename() -> None:
        await filled.pool.execute("ALTER TABLE memories RENAME COLUMN embedding TO gone")

    fetched.before_fusion = rename
    result = await recall.recall("zfs scrub")
    assert result.reason is None
    assert judged(result) == expected


async def test_a_session_that_dies_during_its_leg_is_an_error_and_no_more(
    filled: Any, embedder: Any, fetched: Fetched
) -> None:
    """Both connections go back to the pool, and the next recall is answered."""

    async def die(connection: Any) -> None:
        fetched.before_words = None
        await filled.pool.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())

    recall = filled.recalling(embedder)
    await recall.recall("zfs scrub")
    fetched.before_words = die
    with pytest.raises(DatabaseUnreachable):
        await recall.recall("zfs scrub")
    assert filled.pool.get_idle_size() == filled.pool.get_size()
    assert (await recall.recall("zfs scrub")).reason is None


async def test_one_connection_is_enough(filled: Any, database: Any, embedder: Any, fetched: Fetched) -> None:
    """Where the pool has no second one to spare, one statement does it all."""
    async with asyncpg.create_pool(database.dsn, min_size=1, max_size=1) as pool:
        recall = HybridRecall(pool, embedder)
        result = await asyncio.wait_for(recall.recall("zfs scrub"), timeout=30)
        await recall.close()
    assert result.ids
    assert len(fetched.sessions) == 1


@dataclass
class Api:
    """A process whose recalls share a pool of its own."""

    dsn: str
    embedder: Any
    fetched: Fetched

    async def ask(self, *, connections: int, at_once: int) -> list[list[int]]:
        """The ids that so many recalls at the same time give, after one by itself, which takes both connections."""
        async with asyncpg.create_pool(self.dsn, min_size=connections, max_size=connections) as pool:
            recall = HybridRecall(pool, self.embedder)
            await recall.recall("zfs scrub")
            assert self.fetched.split
            self.fetched.sessions.clear()
            asked = asyncio.gather(*(recall.recall("zfs scrub") for _ in range(at_once)))
            results = await asyncio.wait_for(asked, timeout=60)
            await recall.close()
        return [one.ids for one in results]


@pytest.fixture
def api(database: Any, embedder: Any, fetched: Fetched) -> Api:
    """Over the table under test."""
    return Api(database.dsn, embedder, fetched)


@pytest.mark.usefixtures("filled")
async def test_recalls_at_the_same_time_share_the_connections(api: Api) -> None:
    """None waits for a second connection while it holds a first, so that twenty recalls on two connections end."""
    found = await api.ask(connections=2, at_once=20)
    assert all(ids == found[0] for ids in found)


@pytest.mark.usefixtures("filled")
async def test_a_recall_takes_a_second_connection_only_while_it_is_alone(api: Api, fetched: Fetched) -> None:
    """Others need the processors as much, and are answered later if each takes two."""
    await api.ask(connections=8, at_once=4)
    assert len(fetched.sessions) <= 4 + 2  # the first may have begun before the others came


async def test_a_small_table_s_recall_is_one_statement(
    filled: Any, embedder: Any, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second round trip would cost what it saves."""
    monkeypatch.setattr(recall_parallel, "WORTH_SPLITTING", 1_000)
    await filled.recalling(embedder).recall("zfs scrub")
    assert len(fetched.sessions) == 1
