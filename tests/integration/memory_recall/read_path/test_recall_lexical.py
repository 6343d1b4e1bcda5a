"""The lexical legs: the API's own order to the last place, and BM25 as the literature has it."""

import math
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from memory_recall.schema.table import describe
from memory_recall.search.fusion import Fusion, SortBy
from memory_recall.search.sql import bm25
from memory_recall.search.sql.bm25 import CollectionStatistics
from memory_recall.search.sql.bm25_scoring import frequency
from memory_recall.search.sql.plan import RecallPlan
from memory_recall.search.sql.statement import statement
from memory_recall.search.sql.visibility import EVERYONE, Everyone
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.conftest import CopyWith, Memories, open_memories

WORDS = (
    *("pool", "disk", "scrub", "zfs", "backup", "night", "router", "port", "zigbee", "dongle", "garden", "tomato"),
    *("kettle", "relay", "mesh", "vpn", "cert", "renew"),
)
QUERIES = ["scrub zfs", "zigbee dongle router", "backup night pool disk", "kettle", "renewing certs", "mesh-relay vpn"]

MOSTLY_EVERYWHERE = "backup night pool disk"  # words of nearly every row: which is best hangs on repetition alone

API_AND = """
SELECT id FROM memories, plainto_tsquery('english', $1) query
 WHERE deleted_at IS NULL AND (search_vector @@ query OR $1 = '')
 ORDER BY {order} DESC, id LIMIT $2"""
API_OR = """
SELECT id FROM memories, to_tsquery('english', $1) query
 WHERE deleted_at IS NULL AND search_vector @@ query AND ts_rank(search_vector, query) > 0.01
 ORDER BY ts_rank(search_vector, query) DESC, id LIMIT $2"""
ORDERS = {
    "relevance": "(ts_rank(search_vector, query) * 0.7 + importance * 0.3)",
    "importance": "(ts_rank(search_vector, query) * 0.4 + importance * 0.6)",
}


async def fill(memories: Memories) -> None:
    chance = random.Random(7)  # noqa: S311  (example rows)
    weights = [1 / (rank + 1) for rank in range(len(WORDS))]
    for _ in range(300):
        await memories.add(
            " ".join(chance.choices(WORDS, weights, k=chance.randint(3, 40))),
            importance=round(chance.random(), 2),
            tags=",".join(chance.choices(WORDS, k=2)),
            expanded_keywords=chance.choice(WORDS),
            deleted=chance.random() < 0.1,
        )


async def fill_analyzed(memories: Memories) -> None:
    await fill(memories)
    await memories.pool.execute("UPDATE memories SET user_id = 'ana' WHERE id % 3 = 0")
    await memories.pool.execute("ANALYZE memories")


@pytest.fixture
async def worded(copy_with: CopyWith) -> AsyncIterator[Memories]:
    """300 rows of random words, a few of them deleted; no test changes them."""
    async with open_memories(await copy_with("words", fill, shared=True)) as store:
        yield store


@pytest.fixture
async def analyzed(copy_with: CopyWith) -> AsyncIterator[Memories]:
    """The same rows with Postgres's statistics of them; every third is ana's."""
    async with open_memories(await copy_with("analysed words", fill_analyzed, shared=True)) as store:
        yield store


async def as_the_api_does(memories: Any, query: str, sort_by: str, limit: int) -> list[int]:
    """The API's two queries and its merge."""
    rows = await memories.pool.fetch(API_AND.format(order=ORDERS[sort_by]), query, limit)
    found = [row["id"] for row in rows]
    words = query.split()
    if len(found) < limit and len(words) > 1:
        broad = await memories.pool.fetch(API_OR, " | ".join(words), limit)
        found += [row["id"] for row in broad if row["id"] not in found]
    return found[:limit]


@pytest.mark.parametrize("sort_by", ["relevance", "importance"])
@pytest.mark.parametrize("query", [*(query for query in QUERIES if "-" not in query), ""])
async def test_the_api_s_leg_gives_the_api_s_order(worded: Memories, sort_by: str, query: str) -> None:
    """AND first by the blend, then OR-broadened by rank, at any limit.

    Compounds such as mesh-relay are left out: the API's raw OR query makes a phrase of one, the parsed query its parts.
    """
    recall = worded.recalling(lexical="ts_rank")
    for limit in (1, 5, 40, 200):
        result = await recall.recall(make_query(query, mode="lexical", sort_by=sort_by, limit=limit))
        assert result.ids == await as_the_api_does(worded, query, sort_by, limit)


async def reference_bm25(memories: Any, query: str) -> dict[int, float]:
    """Okapi BM25 in its textbook form, over the lexemes of every row."""
    rows = await memories.pool.fetch(
        "SELECT m.id, array_agg(u.lexeme) AS lexemes, array_agg(cardinality(u.positions)) AS counts"
        " FROM memories m, unnest(m.search_vector) u WHERE m.deleted_at IS NULL GROUP BY m.id"
    )
    documents = {row["id"]: dict(zip(row["lexemes"], row["counts"], strict=True)) for row in rows}
    words = await memories.pool.fetchval("SELECT tsvector_to_array(to_tsvector('english', $1))", query)
    frequencies = Counter(lexeme for document in documents.values() for lexeme in document)
    mean = sum(sum(document.values()) for document in documents.values()) / len(documents)
    scores: dict[int, float] = {}
    for identity, document in documents.items():
        length = sum(document.values())
        score = 0.0
        for word in words:
            times, holding = document.get(word, 0), frequencies[word]
            weight = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
            score += weight * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * length / mean))
        if score > 0:
            scores[identity] = score
    return scores


@pytest.mark.parametrize("query", QUERIES)
async def test_bm25_scores_equal_the_textbook_formula_within_the_row_budget(worded: Memories, query: str) -> None:
    """Scores and order equal an unbounded BM25 over the same lexemes, repeated terms included."""
    expected = await reference_bm25(worded, query)

    result = await worded.recalling(fusion=Fusion(importance=False)).recall(make_query(query, mode="lexical", limit=10))
    scores = {memory.id: memory.evidence.lexical_score for memory in result.memories}
    assert scores == {identity: pytest.approx(expected[identity], rel=1e-6) for identity in scores}
    best = sorted(expected.values(), reverse=True)[: len(scores)]
    assert list(scores.values()) == pytest.approx(best, rel=1e-6)
    assert len(scores) == min(10, len(expected))


async def test_a_small_row_budget_is_spent_on_the_rarest_term(memories: Any) -> None:
    """The common word's many rows do not crowd the rare word's few ones out."""
    for number in range(100):
        await memories.add(f"pool note {number}")
    rare = await memories.add("the xylophone beside the pool")
    async with memories.pool.acquire() as connection:
        table = await describe(connection, "memories")
        sql, arguments = statement(
            RecallPlan(
                make_query("pool xylophone", mode="lexical", limit=50),
                table,
                statistics=CollectionStatistics(1_000_000, 4.0, 1.0),
                rows_per_term=20,
            )
        )
        rows = await connection.fetch(sql, *arguments)
    assert rows[0]["id"] == rare
    assert len(rows) in {20, 21}  # the rare word's row may be among the twenty of the common one


@pytest.mark.parametrize(
    "query", [*(one for one in QUERIES if one != MOSTLY_EVERYWHERE), "zigbee garden kettle relay tomato port"]
)
@pytest.mark.parametrize("user", [EVERYONE, "ana"])
async def test_bm25_scores_of_a_large_table_equal_the_textbook_formula(
    analyzed: Memories, monkeypatch: pytest.MonkeyPatch, query: str, user: str | Everyone
) -> None:
    """Terms in the statistics are read or intersected with others; the best rows are the same, also with filters."""
    monkeypatch.setattr(bm25, "SMALL_TABLE", 0)
    monkeypatch.setattr(bm25, "_RARE_ROWS_SCALE", 0)
    expected = await reference_bm25(analyzed, query)
    if user == "ana":
        expected = {one: score for one, score in expected.items() if one % 3 == 0}
    best = sorted(expected.values(), reverse=True)
    for rare_rows in (0, 20, 500):
        monkeypatch.setattr(bm25, "_LEAST_RARE_ROWS", rare_rows)
        result = await analyzed.recalling(fusion=Fusion(importance=False)).recall(
            make_query(query, mode="lexical", limit=10, user_id=user)
        )
        scores = [expected[one] for one in result.ids]
        # Document frequencies are estimates here, so rows of almost equal score may change places.
        assert scores == pytest.approx(best[: len(scores)], rel=0.03), f"{rare_rows} rare rows"
        assert len(scores) == min(10, len(expected)), f"{rare_rows} rare rows"


async def test_a_large_table_takes_frequencies_from_the_last_analyze(analyzed: Memories) -> None:
    """Where counting would take too long, the common terms are those of Postgres's own statistics."""
    query, statistics = make_query("zfs dongle kettle", mode="lexical"), CollectionStatistics(1_000_000, 22.0, 2.0)
    async with analyzed.pool.acquire() as connection:
        sql, arguments = statement(RecallPlan(query, await describe(connection, "memories"), statistics=statistics))
        rows = await connection.fetch(sql, *arguments)
    assert "pg_stats" in sql
    assert len(rows) == 10
    assert rows[0]["lexical_score"] > 0


@pytest.mark.parametrize("analyzed", [False, True], ids=["never analysed", "analysed while it was empty"])
@pytest.mark.parametrize("partitions", [0, 2])
async def test_rows_of_which_postgres_has_no_estimate_are_estimated_by_their_size(
    memories: Any, analyzed: bool, partitions: int
) -> None:
    """After a logical restore a large table would pass for an empty one, and the first recall would read all of it."""
    unwatched = " WITH (autovacuum_enabled = false)"
    partitioned = " PARTITION BY RANGE (id)" if partitions else unwatched
    await memories.pool.execute(f"CREATE TABLE restored (id integer, content text){partitioned}")
    for part in range(partitions):
        bounds = f"FOR VALUES FROM ({part * 1000}) TO ({part * 1000 + 1000})"
        await memories.pool.execute(f"CREATE TABLE restored_{part} PARTITION OF restored {bounds}{unwatched}")
    if analyzed:
        await memories.pool.execute("ANALYZE restored")
    await memories.pool.execute("INSERT INTO restored SELECT n, repeat('x', 300) FROM generate_series(0, 1999) n")
    async with memories.pool.acquire() as connection:
        table = await describe(connection, "restored")
        estimate = await connection.fetchval(f"SELECT {table.estimated_rows()}")
        largest = await connection.fetchval(f"SELECT {table.estimated_rows(largest_partition=True)}")
        assert 500 < estimate < 8000
        assert largest == pytest.approx(estimate / max(partitions, 1), rel=0.1)
        await connection.execute("ANALYZE restored")
        assert await connection.fetchval(f"SELECT {table.estimated_rows()}") == 2000


async def test_rows_are_read_by_the_rarest_terms_first_and_by_pairs_until_enough_are_expected(
    memories: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a query is bounded by the statistics of its terms, whatever their number."""
    monkeypatch.setattr(bm25, "SMALL_TABLE", 0)
    for word, every in (("xylophone", 100), ("kettle", 20), ("dongle", 4), ("relay", 3), ("garden", 2)):
        await memories.pool.execute(
            "INSERT INTO memories (content) SELECT $1 || ' ' || n FROM generate_series(1, 4000) n WHERE n % $2 = 0",
            word, every,
        )  # fmt: skip
    await memories.pool.execute("UPDATE memories SET content = content || ' relay garden' WHERE content LIKE 'dongle%'")
    await memories.pool.execute("ANALYZE memories")
    question = "xylophone kettle dongle relay garden"
    assert await _rows_of(memories, question, "rare", "postings", "combinations") == (2, 240, 3 + 2)
    monkeypatch.setattr(bm25, "_PAIRED_ROWS", 1_100)  # two pairs promise 510 and 656 rows, more together
    assert await _rows_of(memories, question, "combinations") == (3 + 1,)
    monkeypatch.setattr(bm25, "_PAIRED_ROWS", 1)
    monkeypatch.setattr(bm25, "_LEAST_RARE_ROWS", 100)
    assert await _rows_of(memories, question, "rare", "postings", "combinations") == (1, 40, 4 + 1)


async def test_rows_of_terms_without_statistics_reduce_the_budget_of_terms_with_statistics(
    memories: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several terms that are all new or rather rare cannot make a query cost a multiple of its budget."""
    monkeypatch.setattr(bm25, "SMALL_TABLE", 0)
    monkeypatch.setattr(bm25, "_LEAST_RARE_ROWS", 500)
    add = "INSERT INTO memories (content) SELECT $1 || ' ' || n FROM generate_series(1, $2::integer) n"
    await memories.pool.execute(add, "kettle", 200)
    await memories.pool.execute(add, "dongle", 4000)
    await memories.pool.execute("ANALYZE memories")
    question = "xylophone kettle dongle"
    await memories.pool.execute(add, "xylophone", 250)
    assert await _rows_of(memories, question, "unlisted", "listed", "postings") == (250, 1, 250 + 200)
    await memories.pool.execute(add, "xylophone", 100)
    assert await _rows_of(memories, question, "unlisted", "listed", "postings") == (350, 0, 350)


async def test_terms_without_statistics_share_the_rows_that_are_read_for_them(
    memories: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role to which row-level security applies is shown none, and asks for common words as for rare ones.

    A rare word is found whatever common ones stand before it.
    """
    monkeypatch.setattr(bm25, "SMALL_TABLE", 0)
    monkeypatch.setattr(bm25, "_UNLISTED_ROWS", 100)
    await memories.pool.execute("ALTER TABLE memories SET (autovacuum_enabled = false)")
    add = "INSERT INTO memories (content) SELECT 'relay garden router ' || n FROM generate_series(1, 2000) n"
    await memories.pool.execute(add)
    rare = await memories.add("the xylophone")
    question = "relay garden router xylophone"
    assert await _rows_of(memories, question, "unlisted", "postings") == (25 + 25 + 25 + 1, 25 + 25 + 25 + 1)
    assert await _rows_of(memories, "relay xylophone", "unlisted") == (50 + 1,)
    result = await memories.recalling(fusion=Fusion(importance=False)).recall(make_query(question, mode="lexical"))
    assert rare in result.ids


async def test_terms_that_the_statistics_do_not_list_are_each_read_up_to_their_own_bound(
    memories: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a share of the rows, a long prompt's rare words would count as rarer than they are, and lack candidates."""
    monkeypatch.setattr(bm25, "SMALL_TABLE", 0)
    monkeypatch.setattr(bm25, "_UNLISTED_ROWS", 100)
    await memories.pool.execute("ALTER TABLE memories SET (autovacuum_enabled = false)")
    add = "INSERT INTO memories (content) SELECT $1 || ' ' || n FROM generate_series(1, $2::integer) n"
    await memories.pool.execute(add, "dongle", 2000)
    await memories.pool.execute("ANALYZE memories")
    await memories.pool.execute(add, "relay garden", 80)
    assert await _rows_of(memories, "relay garden dongle", "unlisted", "postings") == (80 + 80, 80 + 80)


async def test_the_frequency_of_a_term_is_computed_from_its_rank(memories: Any) -> None:
    """Exactly, from none to the most that a tsvector keeps."""
    places = "(SELECT string_agg('zfs:' || place, ' ') FROM generate_series(1, often) place)"
    vector = f"(coalesce({places}, '') || ' pool:300')::tsvector"
    read = frequency(vector, "'zfs'::tsquery")
    rows = await memories.pool.fetch(f"SELECT often, {read} AS read FROM generate_series(0, 255) often")
    assert [row["read"] for row in rows] == [row["often"] for row in rows] == list(range(256))


async def _rows_of(memories: Any, question: str, *parts: str) -> tuple[int, ...]:

    async with memories.pool.acquire() as connection:
        rows = await connection.fetchval("SELECT count(*) FROM memories")
        query, table = make_query(question, mode="lexical"), await describe(connection, "memories")
        sql, arguments = statement(RecallPlan(query, table, statistics=CollectionStatistics(rows, 2.0, 30.0)))
        plan = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *arguments)
    found: dict[str, int] = {}
    nodes = [orjson.loads(plan)[0]["Plan"]]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        found[node.get("Subplan Name", "").removeprefix("CTE ")] = round(node["Actual Rows"])
    return tuple(found[part] for part in parts)


@pytest.mark.parametrize("options", [{"lexical": "ts_rank"}, {}], ids=["ts_rank", "by date"])
async def test_a_prompt_of_any_length_is_searched_by_its_beginning(memories: Any, options: dict[str, Any]) -> None:
    """Its thousands of words are not compared with each row, and do not put every row below the floor."""
    wanted = await memories.add(" ".join(f"beginning{n}" for n in range(10)))
    prompt = " ".join([*(f"beginning{n}" for n in range(10)), *(f"end{n}" for n in range(5_000))])
    sort_by = SortBy.RELEVANCE if options else SortBy.RECENCY
    result = await memories.recalling(**options).recall(make_query(prompt, mode="lexical", sort_by=sort_by))
    assert result.ids == [wanted]


async def test_an_or_query_is_made_from_the_parsed_terms(memories: Any) -> None:
    """The raw text would be a syntax error here; the parsed terms find the row."""
    wanted = await memories.add("it doesn't boot: grub & uefi")
    result = await memories.recalling(lexical="ts_rank").recall(make_query("grub | doesn't ! teapot:*", mode="lexical"))
    assert result.ids == [wanted]
