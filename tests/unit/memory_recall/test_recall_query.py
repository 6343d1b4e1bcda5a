"""The request of a recall checks itself, so that a wrong argument is refused in the same way everywhere."""

import sqlite3
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from memory_recall.contrib.fastapi import create_recall_router
from memory_recall.contrib.sqlite import SqliteRecall
from memory_recall.errors import InvalidInput
from memory_recall.schema.table import MemoryTable
from memory_recall.search.fusion import Fusion, SortBy
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.search.period import Period
from memory_recall.search.query import MAX_QUERY_CHARACTERS, RecallQuery
from memory_recall.search.sql.bm25 import CollectionStatistics
from memory_recall.search.sql.filters import Filters
from memory_recall.search.sql.plan import RecallPlan
from memory_recall.search.sql.visibility import Everyone
from tests.integration.memory_recall.queries import make_query
from tests.support.invoked_command import invoke_memory
from tests.support.sqlite_schema import create_schema

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001  (that it is refused is the claim)
CANARY = "zebra-7731"


@pytest.mark.parametrize(
    "arguments",
    [
        {"mode": CANARY},
        {"sort_by": CANARY},
        {"limit": 0},
        {"limit": 10_001},
        {"limit": "1"},
        {"limit": True},
        {"offset": -1},
        {"offset": 10**19},
        {"now": NAIVE},
        {"now": CANARY},
        {"filters": {"category": CANARY}},
        {"vector": [0.1, 0.2]},
        {"fusion": "rrf"},
        {"sensitive": "no"},
        {"least_relevance": CANARY},
        {"least_relevance": 1.1},
        {"least_relevance": -0.1},
        {"least_relevance": float("nan")},
        {"least_relevance": True},
        {"least_relevance": None},
        {"distinct": 1},
        {"max_tokens": 0},
        {"max_tokens": 1.5},
        {"max_tokens": True},
        {"text": None},
        {"user_id": None},
        {"user_id": ""},
        {"user_id": " "},
        {"user_id": 5.0},
        {"user_id": True},
        {"user_id": [CANARY]},
        {"user_id": f"{CANARY}\x00"},
    ],
    ids=str,
)
def test_a_wrong_argument_is_refused_by_its_name(arguments: dict[str, Any]) -> None:
    """The message names the argument and does not quote its value."""
    with pytest.raises(InvalidInput, match=f"^`{next(iter(arguments))}` cannot be used") as caught:
        RecallQuery(**{"text": "x", "user_id": "ana", **arguments})
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"category": f"{CANARY}\x00"},
        {"category": f"{CANARY}\ud800"},
        {"tags": ("good", f"{CANARY}\x00")},
        {"tags": CANARY},
        {"since": "2026-01-01T00:00:00+00:00"},
        {"since": NAIVE},
        {"until": NAIVE},
        {"since": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2)))},
        {"until": datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2)))},
    ],
    ids=str,
)
def test_a_wrong_filter_is_refused_by_its_name(arguments: dict[str, Any]) -> None:
    """A NUL, a time without a zone or beyond the calendar of UTC and a text in a time's place reach no database."""
    with pytest.raises(InvalidInput, match=f"^`{next(iter(arguments))}` cannot be used") as caught:
        Filters(**arguments)
    assert CANARY not in str(caught.value)


def test_a_wrong_parameter_of_the_recall_itself_is_refused() -> None:
    """As of the fusion and of a period; a message names all faults of the options."""
    with pytest.raises(InvalidInput, match=r"`lexical` cannot be used.*`embedding_budget` cannot be used: .*less than"):
        RecallOptions(lexical="tf-idf", embedding_budget=5.0)  # type: ignore[arg-type]  # that it is refused is the claim
    with pytest.raises(InvalidInput, match="`time_budget` cannot be used"):
        RecallOptions(time_budget=0.0)
    with pytest.raises(InvalidInput, match="alpha"):
        Fusion(alpha=1.1)
    with pytest.raises(InvalidInput, match="time zone"):
        Period(NAIVE, NAIVE)


@pytest.mark.finding("H8")
async def test_library_and_sqlite_refuse_what_does_not_say_whose_memories_are_searched() -> None:
    """Nobody's id, and a text alone, which programs of earlier releases passed for everybody's memories."""
    pool: Any = None
    text: Any = CANARY
    with pytest.raises(TypeError, match="user_id"):
        RecallQuery("x")  # type: ignore[call-arg]  # that it is refused is the claim
    with pytest.raises(InvalidInput, match="`reader` cannot be used"):
        Everyone(reader="")
    with pytest.raises(InvalidInput, match="takes a RecallQuery, not str") as caught:
        await HybridRecall(pool).recall(text)
    assert CANARY not in str(caught.value)
    connection = sqlite3.connect(":memory:")
    create_schema(connection)
    with pytest.raises(InvalidInput, match="takes a RecallQuery, not NoneType"):
        SqliteRecall(connection).recall(pool)


@pytest.mark.promise("statements-bind-values")
@pytest.mark.finding("L7")
@pytest.mark.parametrize(
    "body",
    [
        {"category": f"{CANARY}\x00"},
        {"tags": [f"{CANARY}\x00"]},
        {"tags": CANARY},
        {"since": "2026-01-01T00:00:00"},
        {"until": CANARY},
    ],
    ids=str,
)
async def test_the_router_answers_a_wrong_filter_with_422_and_without_quoting_it(body: dict[str, Any]) -> None:
    app, pool = FastAPI(), None
    recall: Any = pool
    app.include_router(create_recall_router(recall, current_user=lambda: "ana"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as http:
        answer = await http.post("/api/memories/recall", json={"context": "x", **body})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"][:2] == ["body", next(iter(body))]
    assert CANARY not in answer.text


@pytest.mark.parametrize("name", ["sensitive", "offset", "mode", "now", "filters", "vector", "fusion", "explain"])
async def test_the_router_refuses_what_the_library_knows_and_a_body_has_not(name: str) -> None:
    """A query marked `sensitive`, which the body calls `is_sensitive`, would otherwise reach a hosted embedder."""
    recall: Any = None
    app = FastAPI()
    app.include_router(create_recall_router(recall, current_user=lambda: "ana"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as http:
        answer = await http.post("/api/memories/recall", json={"context": "x", name: CANARY})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["msg"].startswith(f"Value error, {name}: of no effect")
    assert CANARY not in answer.text


async def test_the_router_answers_a_user_that_is_no_text_with_422() -> None:
    """What the identity's dependency yields is checked as any filter."""
    no_pool: Any = None
    app = FastAPI()
    app.include_router(create_recall_router(HybridRecall(no_pool), current_user=lambda: "a\x00"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as http:
        answer = await http.post("/api/memories/recall", json={"context": "x"})
    assert answer.status_code == 422
    assert "user_id" in answer.json()["detail"][0]["msg"]


@pytest.mark.parametrize(
    ("option", "value"),
    [("--since", "2026-01-01T00:00:00"), ("--category", f"{CANARY}\x01\x00"), ("--limit", "10001"), ("--mode", "x")],
)
def test_the_command_line_refuses_a_wrong_option(option: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it connects to anything."""
    monkeypatch.delenv("MEMORY_DATABASE_URL", raising=False)
    answered = invoke_memory(["recall", "x", "--everyone", option, value, "--json"])
    assert answered.exit_code == 1
    assert "InvalidInput" in answered.stderr
    assert CANARY not in answered.stderr


def test_the_query_s_text_is_cleaned_of_what_no_database_stores() -> None:
    """NUL, lone surrogates and what exceeds the longest query."""
    assert make_query("a\x00b \ud800 ").text == "a b"
    assert len(make_query("x" * (MAX_QUERY_CHARACTERS + 1)).text) == MAX_QUERY_CHARACTERS


def test_the_sort_order_may_be_given_by_its_name_and_tags_as_a_list() -> None:
    """As JSON and command lines have them."""
    assert make_query("x", sort_by="importance").sort_by is SortBy.IMPORTANCE
    assert Filters(tags=["a", "b"]).tags == ("a", "b")  # type: ignore[arg-type]  # a list
    assert Filters(since=datetime(2026, 1, 1, tzinfo=UTC)).selective
    assert not Filters().selective
    assert make_query("x", user_id="ana").selective
    assert not make_query("x").selective


@pytest.mark.parametrize(
    ("limit", "offset", "depth"), [(10, 0, 50), (30, 100, 130), (10_000, 0, 1_000), (1, 5_000, 1_000)]
)
def test_a_leg_returns_fifty_rows_or_the_page_and_at_most_a_thousand(limit: int, offset: int, depth: int) -> None:
    """However large the limit, so that the work of one recall is bounded; a lexical order alone has no such bound."""
    query, table = make_query("kettle", limit=limit, offset=offset), MemoryTable("public", "memories", {}, None, None)
    assert RecallPlan(query, table, statistics=CollectionStatistics(5, 2.0, 30.0)).depth == depth
    assert RecallPlan(query, table, lexical="ts_rank").depth == limit + offset
