"""The route has the API's request and response, byte for byte in the fields that its clients read."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Header

from memory_recall.contrib.chat_client import ChatClient
from memory_recall.contrib.fastapi import create_recall_router
from memory_recall.contrib.query_expansion import QueryExpansion
from tests.integration.memory_recall.chat_server import ChatServer
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.conftest import LONG_BUDGET
from tests.integration.memory_recall.read_path.vectors import axis

FIELDS = {
    "id", "content", "category", "tags", "importance", "is_sensitive", "rank", "owner", "created_at",
    "updated_at", "shared_by",
}  # fmt: skip


def user_of(x_user: str = Header()) -> str:
    return x_user


def client(recall: Any, **options: Any) -> httpx.AsyncClient:
    app = FastAPI()
    app.include_router(create_recall_router(recall, current_user=user_of, **options))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", headers={"x-user": "ana"})


async def test_the_answer_has_the_form_of_the_api(memories: Any, embedder: Any) -> None:
    """Every field of the API's answer, with ISO dates, under `memories`."""
    await memories.add("zigbee dongle", user_id="ana", tags="a,b", category="ops")
    async with client(memories.recalling(embedder)) as http:
        response = await http.post("/api/memories/recall", json={"context": "zigbee", "expanded_query": "dongle usb"})
    assert response.status_code == 200
    assert set(response.json()) == {"memories"}
    (memory,) = response.json()["memories"]
    assert set(memory) == FIELDS
    assert (memory["content"], memory["tags"], memory["category"]) == ("zigbee dongle", "a,b", "ops")
    assert (memory["owner"], memory["shared_by"], memory["is_sensitive"]) == ("ana", None, False)
    assert memory["created_at"].endswith("+00:00")
    assert isinstance(memory["rank"], float)
    assert embedder.calls == ["zigbee dongle usb"]


async def test_a_request_says_how_many_tokens_its_memories_may_have(memories: Any, embedder: Any) -> None:
    """Then the answer says how many memories did not fit; rows of the caller's own table are left out alike."""
    for content in ("zigbee dongle", "zigbee"):
        await memories.add(content, user_id="ana")
    recall = memories.recalling(embedder)
    async with client(recall) as http:
        answer = (await http.post("/api/memories/recall", json={"context": "zigbee", "max_tokens": 5})).json()
    rows = await recall.recall_rows(make_query("zigbee", user_id="ana", max_tokens=5))
    assert answer["left_out"] == 1
    assert len(rows) == len(answer["memories"]) == 1
    assert rows[0]["content"] == answer["memories"][0]["content"]


async def test_a_request_asks_for_distinct_memories(memories: Any, embedder: Any) -> None:
    for _ in range(3):
        await memories.add("zigbee dongle", user_id="ana", vector=axis(1.0))
    async with client(memories.recalling(embedder)) as http:
        counts = [
            len((await http.post("/api/memories/recall", json={"context": "zigbee", **asked})).json()["memories"])
            for asked in ({}, {"distinct": True})
        ]
    assert counts == [3, 1]


async def test_a_request_says_how_relevant_a_memory_must_be(memories: Any, embedder: Any) -> None:
    """Then the answer says how many were held back, and what their relevance was computed from."""
    await memories.pool.execute("UPDATE memory_index_models SET usual_cosine = 0.3")
    await memories.add("zigbee dongle", user_id="ana", vector=axis(1.0))
    embedder.vectors["go on"] = axis(0.0, 1.0)
    async with client(memories.recalling(embedder)) as http:
        nothing, found = [
            (await http.post("/api/memories/recall", json={"context": context, "least_relevance": level})).json()
            for context, level in (("go on", "likely"), ("zigbee", 0.5))
        ]
    assert nothing == {"memories": [], "held_back": 1, "relevance_basis": "MeaningAndWords"}
    assert (len(found["memories"]), found["held_back"]) == (1, 0)
    assert set(found["memories"][0]) == FIELDS | {"relevance"}


async def test_a_query_is_expanded_if_the_request_asks_for_it_and_is_not_sensitive(memories: Any) -> None:
    found = await memories.add("a snapshot", user_id="ana")
    async with ChatServer() as chat, ChatClient(chat.url, "tiny-chat") as model:
        recall = QueryExpansion(memories.recalling(), model, budget=LONG_BUDGET / 2)
        ids = []
        async with client(recall) as http:
            for more in ({}, {"expand": True, "is_sensitive": True}, {"expand": True}):
                answer = await http.post("/api/memories/recall", json={"context": "backup", **more})
                ids.append([one["id"] for one in answer.json()["memories"]])
    assert (ids, chat.requests) == ([[], [], [found]], 1)


async def test_a_superseded_memory_alone_has_a_further_field(memories: Any, embedder: Any) -> None:
    """It follows the memory whose id the field names."""
    older, newer = [await memories.add(f"zigbee dongle {number}", user_id="ana") for number in (1, 2)]
    await memories.pool.execute(
        "INSERT INTO memory_supersessions (run, action, id, superseded_by, text_hash, successor_hash) SELECT 1,"
        " 'UPDATE', o.id, n.id, memory_index_text_hash(o.content), memory_index_text_hash(n.content)"
        " FROM memories o JOIN memories n ON n.id = o.id + 1"
    )
    async with client(memories.recalling(embedder)) as http:
        answer = (await http.post("/api/memories/recall", json={"context": "zigbee"})).json()
    first, second = answer["memories"]
    assert (first["id"], set(first)) == (newer, FIELDS)
    assert (second["id"], set(second), second["superseded_by"]) == (older, FIELDS | {"superseded_by"}, newer)


@pytest.mark.promise("own-memories-alone")
async def test_the_route_returns_only_the_callers_own_memories_unless_the_api_shares_all(
    memories: Any, embedder: Any
) -> None:
    """An API whose memories are common to all says so; what is another's is then marked."""
    own = await memories.add("zigbee dongle", user_id="ana")
    other = await memories.add("zigbee dongle", user_id="bo")
    recall = memories.recalling(embedder)
    async with client(recall) as http:
        answer = (await http.post("/api/memories/recall", json={"context": "zigbee"})).json()
    assert [memory["id"] for memory in answer["memories"]] == [own]
    async with client(recall, scope="everyone") as http:
        answer = (await http.post("/api/memories/recall", json={"context": "zigbee"})).json()
    assert {memory["id"]: memory["shared_by"] for memory in answer["memories"]} == {own: None, other: "bo"}


async def test_a_sensitive_memory_is_found_by_its_owner_alone_where_all_memories_are_shared(
    memories: Any, embedder: Any
) -> None:
    """Masked, with its tags; of another user's neither words nor tags, rank or id can be guessed."""
    own = await memories.add("PIN 4711", user_id="ana", tags="bank,pin", sensitive=True)
    await memories.add("PIN zebra77", user_id="bo", tags="bank,card", sensitive=True)
    async with client(memories.recalling(embedder), scope="everyone") as http:
        for guess in ("zebra77", "PIN zebra77", "card", "bank"):
            answer = (await http.post("/api/memories/recall", json={"context": guess})).json()
            assert {memory["id"] for memory in answer["memories"]} <= {own}, guess
            assert "card" not in str(answer)
        (memory,) = answer["memories"]
    assert (memory["content"], memory["tags"]) == (f"[SENSITIVE - use secret_get(id={own})]", "bank,pin")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"context": None},
        {"context": "x", "limit": 0},
        {"context": "x", "limit": 10_001},
        {"context": "x", "sort_by": "rank"},
        {"context": ["x"]},
        {"context": "x", "since": "0001-01-01T00:00:00+02:00"},
        {"context": "x", "until": "9999-12-31T23:59:59-02:00"},
    ],
)
async def test_a_malformed_request_is_answered_with_422(memories: Any, body: dict[str, Any]) -> None:
    """422, as the API answers."""
    async with client(memories.recalling()) as http:
        assert (await http.post("/api/memories/recall", json=body)).status_code == 422


async def test_a_failing_embedder_does_not_change_the_form_of_the_answer(memories: Any, embedder: Any) -> None:
    """The caller gets the memories of the lexical leg, and no field that it does not know."""
    embedder.vectors["zigbee"] = RuntimeError("any")
    await memories.add("zigbee dongle", user_id="ana")
    async with client(memories.recalling(embedder)) as http:
        response = await http.post("/api/memories/recall", json={"context": "zigbee", "sort_by": "relevance"})
    assert response.status_code == 200
    assert len(response.json()["memories"]) == 1


async def test_an_unreachable_database_is_answered_with_503(memories: Any) -> None:
    """503 with Retry-After, so that a hook tries again later."""
    recall = memories.recalling()
    await recall.recall(make_query("x"))
    await memories.pool.close()
    async with client(recall) as http:
        response = await http.post("/api/memories/recall", json={"context": "x"})
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
