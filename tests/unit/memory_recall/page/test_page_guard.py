"""Who may talk to the page, and what it answers to what it was not made for."""

import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from memory_recall.contrib.local_page.guard import Guard
from memory_recall.contrib.page.app import Views, page_app
from memory_recall.contrib.page.judging import Judging
from memory_recall.errors import DatabaseUnreachable
from memory_recall.search.sql.visibility import EVERYONE
from memory_recall.status import DatabaseFacts
from tests.unit.memory_recall.fake_recall import FakeRecall, memory
from tests.unit.memory_recall.labelling.fake_store import FakeStore, state
from tests.unit.memory_recall.labelling.test_labelling_order import labeller

ADDRESS, TOKEN = "127.0.0.1:8123", "correct-token"
OWN = {"Origin": f"http://{ADDRESS}"}


class Page:
    """The page's application with one memory and one question, without a server."""

    def __init__(self, folder: Path, store: FakeStore) -> None:
        self.output = folder / "labels.questions.jsonl"
        self.stopped: list[bool] = []
        self.labeller = labeller(folder / "labels.json", state(1), store)
        self.recall = FakeRecall([memory(1, "memory number 1")])
        views = Views(self.recall, EVERYONE, _unreachable, Judging(self.labeller, self.output))
        app = page_app(views, stop=lambda: self.stopped.append(True))
        transport = httpx.ASGITransport(Guard(app, address=ADDRESS, token=TOKEN))
        self.client = httpx.AsyncClient(transport=transport, base_url=f"http://{ADDRESS}/{TOKEN}")

    async def answer(self, given: Any) -> httpx.Response:
        return await self.client.post("answer", content=json.dumps(given), headers=OWN)

    async def ask(self, given: Any) -> httpx.Response:
        return await self.client.post("recall", content=json.dumps(given), headers=OWN)


async def _unreachable() -> DatabaseFacts:
    raise DatabaseUnreachable("The database does not answer.", "Start it.")


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    made = Page(tmp_path, FakeStore())
    async with made.client:
        yield made


@pytest.mark.promise("page-reveals-nothing")
@pytest.mark.parametrize("path", ["", "/", "/wrong/", "/wrong/screen", "/correct-token", "/correct-tokens/screen"])
async def test_nothing_is_answered_without_the_token(path: str, page: Page) -> None:
    found = await page.client.get(f"http://{ADDRESS}{path}")
    assert found.status_code == 404
    assert "memory" not in found.text


@pytest.mark.promise("page-reveals-nothing")
@pytest.mark.parametrize("token", ["", "/wrong", "/correct-tokens"])
async def test_nothing_is_recalled_and_no_state_is_told_without_the_token(token: str, page: Page) -> None:
    """Not to the page's own origin either, which a program of the machine can name."""
    asked = await page.client.post(f"http://{ADDRESS}{token}/recall", json={"text": "memory"}, headers=OWN)
    told = [await page.client.get(f"http://{ADDRESS}{token}/{name}") for name in ("begin", "state")]
    assert {one.status_code for one in (asked, *told)} == {404}
    assert page.recall.requests == []


@pytest.mark.promise("page-reveals-nothing")
@pytest.mark.parametrize("host", ["evil.example:8123", "localhost:8123", "127.0.0.1", "127.0.0.1:8124"])
async def test_a_name_that_leads_here_is_refused(host: str, page: Page) -> None:
    """As a web site that lets its own name lead to 127.0.0.1 sends it, even if it knew the token."""
    found = await page.client.get("screen", headers={"Host": host})
    assert found.status_code == 421
    assert "memory" not in found.text


@pytest.mark.promise("page-changed-by-its-user")
@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", f"https://{ADDRESS}", "http://127.0.0.1:8124"])
async def test_another_site_can_change_nothing(origin: str | None, page: Page) -> None:
    """A form of another site sends its own origin, or none."""
    before = await page.client.get("screen")
    for path in ("answer", "export", "recall", "finish"):
        headers = {} if origin is None else {"Origin": origin}
        refused = await page.client.post(path, json={"kind": "undo", "task": ""}, headers=headers)
        assert refused.status_code == 403
    assert (await page.client.get("screen")).json() == before.json()
    assert not page.output.exists()
    assert page.recall.requests == []
    assert page.stopped == []


@pytest.mark.promise("page-loads-nothing")
@pytest.mark.parametrize("path", ["", "page.js", "page.css", "begin", "screen", "state", "/nowhere"])
async def test_every_answer_forbids_to_load_from_elsewhere_and_to_be_kept(path: str, page: Page) -> None:
    """Refusals too."""
    found = await page.client.get(f"http://{ADDRESS}/nowhere" if path == "/nowhere" else path)
    policy = found.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert found.headers["cache-control"] == "no-store"
    assert found.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("name", ["", "page.js", "recall.js", "judge.js", "index.js", "requests.js", "page.css"])
async def test_the_page_names_no_other_host(name: str, page: Page) -> None:
    found = await page.client.get(name)
    assert found.status_code == 200
    assert "//" not in found.text.replace("// ", "")


@pytest.mark.parametrize(
    "given",
    [
        [], {}, {"task": 1}, {"task": "x"}, {"task": "x", "kind": "other"}, {"task": "x", "kind": "grade", "grade": 4},
        {"task": "x", "kind": "grade", "grade": "3"}, {"task": "x", "kind": "grade", "grade": True},
        {"task": "x", "kind": "write", "text": " "}, {"task": "x", "kind": "write", "text": "x" * 2001},
        {"task": "x" * 20_000, "kind": "undo"},
    ],
    ids=lambda given: json.dumps(given)[:40],
)  # fmt: skip
async def test_a_malformed_answer_is_refused_and_changes_nothing(given: Any, page: Page) -> None:
    await page.client.get("screen")
    before = page.labeller.labels
    refused = await page.answer(given)
    assert refused.status_code == 422
    assert set(refused.json()) == {"message", "remedy"}
    assert page.labeller.labels == before


@pytest.mark.parametrize(
    "given", [[], {}, {"text": 1}, {"text": " "}, {"text": None}, {"text": "x" * 17_000}], ids=lambda one: str(one)[:20]
)
async def test_a_malformed_or_unbounded_question_is_refused_and_nothing_is_recalled(given: Any, page: Page) -> None:
    refused = await page.ask(given)
    assert refused.status_code == 422
    assert set(refused.json()) == {"message", "remedy"}
    assert page.recall.requests == []


async def test_a_question_is_recalled_once_of_those_whom_the_command_names_and_holds_nothing_back(page: Page) -> None:
    """It cannot ask for anybody else's memories."""
    found = await page.ask({"text": "which one?", "user": "bob", "user_id": "bob"})
    assert [one["content"] for one in found.json()["memories"]] == ["memory number 1"]
    (request,) = page.recall.requests
    assert (request.query.text, request.query.user_id, request.query.least_relevance) == ("which one?", EVERYONE, 0.0)


async def test_without_labels_there_is_nothing_to_judge(page: Page) -> None:
    alone = page_app(Views(page.recall, "ana", _unreachable), stop=lambda: None)
    transport = httpx.ASGITransport(Guard(alone, address=ADDRESS, token=TOKEN))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{ADDRESS}/{TOKEN}") as client:
        begun = (await client.get("begin")).json()
        assert (begun["judging"], begun["whose"]) == (False, "the memories of ana")
        assert (await client.get("screen")).status_code == 404
        assert (await client.post("answer", json={}, headers=OWN)).status_code == 404


async def test_a_state_that_cannot_be_read_is_told_in_a_sentence(page: Page) -> None:
    failed = await page.client.get("state")
    assert failed.status_code == 503
    assert failed.json() == {"message": "DatabaseUnreachable: The database does not answer.", "remedy": "Start it."}


async def test_a_failing_database_is_named_and_an_unexpected_error_is_not_quoted(tmp_path: Path) -> None:
    """Its message may hold a text."""
    store = FakeStore()
    store.error = DatabaseUnreachable("The database does not answer.", "Start it.")
    async with Page(tmp_path, store).client as client:
        failed = await client.get("screen")
        store.error = ValueError("a secret text")
        unexpected = await client.get("screen")
    assert (failed.status_code, unexpected.status_code) == (503, 500)
    assert failed.json() == {"message": "DatabaseUnreachable: The database does not answer.", "remedy": "Start it."}
    assert "secret" not in unexpected.text
    assert "ValueError" in unexpected.text


async def test_an_export_is_readable_by_its_owner_alone(page: Page) -> None:
    for _ in range(3):
        task = (await page.client.get("screen")).json()["task"]["id"]
        assert (await page.answer({"task": task, "kind": "grade", "grade": 3})).status_code == 200
    told = (await page.client.post("export", json={}, headers=OWN)).json()
    assert (told["questions"], told["file"]) == (1, str(page.output))
    assert stat.S_IMODE(page.output.stat().st_mode) == 0o600
    assert (await page.client.post("finish", json={}, headers=OWN)).status_code == 200
    assert page.stopped == [True]
