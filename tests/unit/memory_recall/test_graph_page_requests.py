"""What the page of the concept graph answers, to itself and to others."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from memory_recall.errors import DatabaseUnreachable, InvalidInput
from memory_recall.graph.neighbourhood import Neighbourhood, ShownMemory
from memory_recall.graph.page.app import page_app
from memory_recall.local_page.guard import Guard

ADDRESS, TOKEN = "127.0.0.1:8123", "correct-token"
OWN = {"Origin": f"http://{ADDRESS}"}


class OneMemory:
    """Ana has one memory, with one concept."""

    def __init__(self) -> None:
        self.user: str | None = "ana"
        self.error: Exception | None = None

    async def neighbourhood(self, concept: str) -> Neighbourhood:
        if self.error is not None:
            raise self.error
        newest = [ShownMemory(1, "Marit sings.", [])] if concept == "marit" else []
        return Neighbourhood(concept, len(newest), more=False, newest=newest, sharing=0, shared=[])

    async def text(self, memory_id: int) -> str:
        if memory_id != 1:
            raise InvalidInput(f"Memory {memory_id} is not shown.", "Look at another one.")
        return "Marit sings."


@pytest.fixture
def reader() -> OneMemory:
    return OneMemory()


@pytest.fixture
async def client(reader: OneMemory) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(Guard(page_app(reader, "marit"), address=ADDRESS, token=TOKEN))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{ADDRESS}/{TOKEN}", headers=OWN) as made:
        yield made


@pytest.mark.promise("page-reveals-nothing")
@pytest.mark.parametrize("path", ["/", "/begin", "/wrong/begin", "/wrong/page.js"])
async def test_nothing_is_answered_without_the_token(path: str, client: httpx.AsyncClient) -> None:
    found = await client.get(f"http://{ADDRESS}{path}")
    assert found.status_code == 404
    assert "marit" not in found.text


@pytest.mark.promise("page-reveals-nothing")
@pytest.mark.parametrize(("name", "value"), [("Origin", "http://evil.example"), ("Host", "evil.example:8123")])
async def test_another_site_reads_no_memory(name: str, value: str, client: httpx.AsyncClient) -> None:
    """Even if it knew the token: neither by its own name nor by a name of its own that leads here."""
    for path, given in (("look", {"concept": "marit"}), ("read", {"memory": 1})):
        refused = await client.post(path, json=given, headers={name: value})
        assert refused.status_code in {403, 421}
        assert "Marit" not in refused.text


@pytest.mark.promise("page-loads-nothing")
@pytest.mark.parametrize("name", ["", "page.js", "requests.js", "page.css"])
async def test_the_page_loads_nothing_from_elsewhere(name: str, client: httpx.AsyncClient) -> None:
    """Its files name no other host but the namespace of SVG, which is never requested, and the policy forbids it."""
    found = await client.get(name)
    assert found.status_code == 200
    assert "//" not in found.text.replace("// ", "").replace('"http://www.w3.org/2000/svg"', "")
    assert "style=" not in found.text
    assert found.headers["content-security-policy"].startswith("default-src 'none'; ")
    assert found.headers["cache-control"] == "no-store"


async def test_a_concept_is_drawn_and_its_memory_is_read(client: httpx.AsyncClient) -> None:
    assert (await client.get("begin")).json() == {"concept": "marit", "user": "ana"}
    picture = (await client.post("look", json={"concept": "marit"})).json()
    assert [(node["kind"], node["name"]) for node in picture["nodes"]] == [("middle", "marit"), ("memory", "1")]
    assert (await client.post("read", json={"memory": 1})).json() == {"id": 1, "content": "Marit sings."}


@pytest.mark.parametrize(("user", "whose"), [("ana", " of ana"), (None, "")])
async def test_an_unknown_concept_is_said_with_a_remedy(
    user: str | None, whose: str, reader: OneMemory, client: httpx.AsyncClient
) -> None:
    reader.user = user
    refused = await client.post("look", json={"concept": "zeppelin"})
    assert refused.status_code == 422
    assert refused.json()["message"] == f'No memory{whose} that may be shown has the concept "zeppelin".'
    assert "memory graph status" in refused.json()["remedy"]


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("look", []), ("look", {}), ("look", {"concept": 1}), ("look", {"concept": "x" * 20_000}),
        ("read", {}), ("read", {"memory": "1"}), ("read", {"memory": True}), ("read", {"memory": 2**63}),
        ("read", {"memory": -(2**70)}), ("read", {"memory": 2}),
    ],
    ids=lambda given: json.dumps(given)[:40],
)  # fmt: skip
async def test_what_cannot_be_shown_is_refused_with_a_remedy(path: str, given: Any, client: httpx.AsyncClient) -> None:
    refused = await client.post(path, json=given)
    assert refused.status_code == 422
    assert all(refused.json()[part] for part in ("message", "remedy"))


async def test_a_failing_database_is_named_and_an_unexpected_error_is_not_quoted(
    reader: OneMemory, client: httpx.AsyncClient
) -> None:
    """Its message may hold a text."""
    reader.error = DatabaseUnreachable("The database does not answer.", "Start it.")
    failed = await client.post("look", json={"concept": "marit"})
    reader.error = ValueError("a secret text")
    unexpected = await client.post("look", json={"concept": "marit"})
    assert (failed.status_code, unexpected.status_code) == (503, 500)
    assert failed.json() == {"message": "DatabaseUnreachable: The database does not answer.", "remedy": "Start it."}
    assert "secret" not in unexpected.text
