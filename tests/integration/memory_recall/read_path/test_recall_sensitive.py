"""A user finds his own sensitive memories, masked; those of others change nothing in what he is answered."""

import random
from typing import Any

import pytest

from memory_recall.errors import InvalidInput
from memory_recall.schema.table import describe
from memory_recall.search.fusion import Fusion
from memory_recall.search.query import RecallQuery
from memory_recall.search.result import RecallResult
from memory_recall.search.sql import bm25, collection_statistics
from memory_recall.search.sql.collection_statistics import assumed_collection, measure_collection
from memory_recall.search.sql.visibility import EVERYONE, Everyone
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.splitting import Fetched
from tests.integration.memory_recall.read_path.vectors import axis

WORDS = ("boiler", "dongle", "garden", "kettle", "pool", "relay", "router", "scrub", "tomato", "zfs")
SECRETS = ("zebra77", "hunter2", "kestrel", "iban", "grandmother")
READERS = (EVERYONE, Everyone(reader="alice"), "alice")
QUESTIONS = 20


def text(chance: random.Random, words: tuple[str, ...]) -> str:
    return " ".join(chance.choices(words, k=chance.randint(1, 9)))


async def fill(memories: Any, chance: random.Random) -> None:
    """Ordinary memories of two users, of whom each has sensitive ones, too."""
    for _ in range(40):
        user, vector = chance.choice(["alice", "bob"]), axis(chance.random(), chance.random(), chance.random())
        await memories.add(text(chance, WORDS), user_id=user, vector=vector, importance=chance.random())
    for _ in range(15):
        await memories.add(
            text(chance, WORDS + SECRETS), user_id="bob", sensitive=True, tags="bank,pin", importance=chance.random()
        )
    for _ in range(4):
        await memories.add(text(chance, WORDS), user_id="alice", sensitive=True)


def guesses(chance: random.Random) -> list[dict[str, Any]]:
    """Questions that a person might ask who wants to know whether a word is in a memory that he may not read."""
    return [
        {
            "text": chance.choice(["", text(chance, WORDS), text(chance, SECRETS), text(chance, WORDS + SECRETS)]),
            "mode": chance.choice(["hybrid", "lexical", "dense"]),
            "sort_by": chance.choice(["relevance", "importance", "recency"]),
            "limit": chance.choice([1, 5, 50]),
        }
        for _ in range(QUESTIONS)
    ]


async def answers(memories: Any, embedder: Any, questions: list[dict[str, Any]], **options: Any) -> list[RecallResult]:
    recall = memories.recalling(embedder, **options)
    return [
        await recall.recall(RecallQuery(user_id=reader, **question)) for question in questions for reader in READERS
    ]


def memories_of(results: list[RecallResult]) -> list[Any]:
    return [result.memories for result in results]


@pytest.mark.promise("sensitive-memory-hidden")
@pytest.mark.finding("M7")
@pytest.mark.parametrize("way", ["one statement", "parallel legs", "large table"])
@pytest.mark.parametrize(
    "options", [{}, {"fusion": Fusion(method="rrf")}, {"lexical": "ts_rank"}], ids=["convex", "rrf", "ts_rank"]
)
async def test_no_answer_tells_of_a_sensitive_memory_of_another_user(
    memories: Any, embedder: Any, monkeypatch: pytest.MonkeyPatch, way: str, options: dict[str, Any]
) -> None:
    """Ids, order, scores and evidence are those of a table that never held it, in every way to recall."""
    chance = random.Random(f"{way} {options}")  # noqa: S311  (a test's data, the same in every run)
    fetched = Fetched(monkeypatch) if way == "parallel legs" else None
    if way == "large table":
        monkeypatch.setattr(bm25, "SMALL_TABLE", 0)
    await fill(memories, chance)
    async with memories.pool.acquire(), memories.pool.acquire():
        pass  # so that two connections are idle
    questions = guesses(chance)
    beside_secrets = await answers(memories, embedder, questions, **options)
    deleted = await memories.pool.fetch("DELETE FROM memories WHERE is_sensitive AND user_id = 'bob' RETURNING id")
    assert len(deleted) == 15
    without = await answers(memories, embedder, questions, **options)
    assert memories_of(beside_secrets) == memories_of(without)
    assert any(memories_of(without)), "the questions find something"
    if fetched is not None and options.get("lexical") != "ts_rank":
        assert len(set(fetched.sessions)) == 2, "some recalls used two connections"


@pytest.mark.promise("owner-finds-masked-memory")
@pytest.mark.parametrize("mode", ["hybrid", "lexical", "dense"])
async def test_the_owner_finds_a_sensitive_memory_lexically_and_without_its_content(
    memories: Any, embedder: Any, mode: str
) -> None:
    """The mask is applied inside the database, in every mode that can find the row at all."""
    secret = await memories.add("router admin password is hunter2", sensitive=True, user_id="ana", tags="bank,pin")
    await memories.add("The router stands in the attic", vector=axis(1.0), user_id="ana")
    for user in ("ana", Everyone(reader="ana")):
        result = await memories.recalling(embedder).recall(make_query("router password", mode=mode, user_id=user))
        assert "hunter2" not in repr(result)
        found = {memory.id: memory for memory in result.memories}
        assert (secret in found) is (mode != "dense")
        if mode != "dense":
            assert found[secret].is_sensitive
            assert found[secret].content == f"[SENSITIVE - use secret_get(id={secret})]"
            assert found[secret].tags == "bank,pin"


async def test_a_vector_that_a_sensitive_memory_should_not_have_is_not_searched(memories: Any, embedder: Any) -> None:
    """Even where the rules of the database are gone, the dense leg does not find it for others."""
    async with memories.pool.acquire() as connection:
        await connection.execute("ALTER TABLE memories DISABLE TRIGGER ALL")
        await connection.execute("ALTER TABLE memories DROP CONSTRAINT memory_index_no_private_embedding")
    secret = await memories.add("router admin password", sensitive=True, user_id="bob", vector=axis(1.0))
    plain = await memories.add("the kettle", user_id="bob", vector=axis(0.5, 0.5))
    recall = memories.recalling(embedder)
    for reader, expected in (("bob", [secret, plain]), (EVERYONE, [plain]), (Everyone(reader="alice"), [plain])):
        assert (await recall.recall(make_query("x", mode="dense", user_id=reader))).ids == expected


async def test_a_table_without_owners_belongs_to_one_user_unless_a_reader_is_named(
    memories: Any, embedder: Any
) -> None:
    """Who knows several users cannot tell whose a sensitive memory is."""
    secret = await memories.add("router admin password", sensitive=True)
    plain = await memories.add("the router", vector=axis(1.0))
    await memories.pool.execute("ALTER TABLE memories DROP COLUMN user_id")
    recall = memories.recalling(embedder)
    assert set((await recall.recall(make_query("router"))).ids) == {secret, plain}
    assert (await recall.recall(make_query("router", user_id=Everyone(reader="ana")))).ids == [plain]
    with pytest.raises(InvalidInput, match="does not say whose"):
        await recall.recall(make_query("router", user_id="ana"))


async def test_of_a_large_table_is_assumed_what_the_sample_does_not_tell(
    memories: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the statistics of an empty table each row with a term of the query would be scored, and its length punished.

    The sample may miss the few pages of what is left of a table, or be taken before a search column is filled.
    """
    monkeypatch.setattr(collection_statistics, "_SAMPLED_ROWS", 50)
    await memories.pool.execute(
        "INSERT INTO memories (content, deleted_at) SELECT 'a note', now() FROM generate_series(1, 2000)"
    )
    await memories.add("the one that is left")
    await memories.pool.execute("ANALYZE memories")
    async with memories.pool.acquire() as connection:
        table = await describe(connection, "memories")
        assert await measure_collection(connection, table) == assumed_collection(2001)


async def test_statistics_leave_sensitive_memories_out(memories: Any) -> None:
    """The mean length of the texts of others would show in the scores of one's own."""
    await memories.add("two words")
    async with memories.pool.acquire() as connection:
        table = await describe(connection, "memories")
        before = await measure_collection(connection, table)
        await memories.add("hunter2 " * 300, sensitive=True)
        assert await measure_collection(connection, table) == before
