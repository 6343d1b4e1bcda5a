"""To a hosted provider goes the text of rows that may leave, and nothing else; without consent nothing goes at all."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from memory_recall.embedding.api_key import ApiKey
from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.served_model import ServedModel
from memory_recall.errors import EmbedderUnauthorized, EmbedderUnavailable, MemoryIndexError, ModelMismatch
from memory_recall.hnsw.repair import build_index
from memory_recall.indexing import hosted_embedder
from memory_recall.indexing.backfill import BackfillResult, backfill
from memory_recall.indexing.embedders import EmbedderDirectory, look_up_sendable
from memory_recall.indexing.hosted_embedder import HostedEmbedder, RateLimits
from memory_recall.indexing.pipeline import BatchLimits
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.indexing.sendable_rows import SendableRows
from memory_recall.indexing.stored_vectors_sql import read_stored_vectors
from memory_recall.indexing.sync import sync
from memory_recall.indexing.worker import WorkerPlan
from memory_recall.postgres.connection import DsnText, create_pool
from memory_recall.postgres.session import Session
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.table import ACTIVE, describe
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.search.result import Degraded
from tests.integration.conftest import CopyOf
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.voyage_server import VoyageServer
from tests.integration.memory_recall.workbench import DIMENSIONS, INDEX, Workbench, until
from tests.support.memory_command import run_memory
from tests.support.voyage import voyage_client

KEY = "pa-key-canary"
CANARIES = ("sensitive-canary", "deleted-canary", "tag-canary", "category-canary", "user-canary", "keyword-canary")
UNLIMITED = RateLimits(1_000_000, 1_000_000_000)


@pytest.fixture
async def bench(copy_of: CopyOf, request_for: Callable[..., MigrationRequest]) -> AsyncIterator[Workbench]:
    """A database whose model is the hosted one, and the provider."""
    request = request_for(model="voyage-test")
    database = await copy_of("migrated for a hosted model", lambda empty: migrate(DsnText(empty.dsn), request))
    async with VoyageServer(dimensions=DIMENSIONS) as server:
        yield Workbench(database, server)


def provider(bench: Workbench) -> VoyageServer:
    assert isinstance(bench.embedder, VoyageServer)
    return bench.embedder


@asynccontextmanager
async def hosted(bench: Workbench, key: ApiKey = KEY, **limits: int) -> AsyncIterator[HostedEmbedder]:
    session = Session(DsnText(bench.database.dsn), name="memory-egress", listener=bench.ear)
    async with voyage_client("voyage-test", DIMENSIONS, key, base_url=bench.embedder.url, **limits) as client, session:
        sendable = SendableRows(session.run, partial(look_up_sendable, name="memories"))
        yield HostedEmbedder(client, UNLIMITED, sendable=sendable, longest_pause=0.01)


async def fill(bench: Workbench, plan: WorkerPlan | None = None, **limits: int) -> BackfillResult:
    async with hosted(bench, **limits) as embedder:
        return await backfill(
            DsnText(bench.database.dsn), embedder, plan or bench.plan, progress=bench.ear, stop=bench.stop
        )


async def store_canaries(bench: Workbench) -> None:
    await bench.execute(
        """
        INSERT INTO memories (content, tags, category, user_id, expanded_keywords, is_sensitive, deleted_at) VALUES
            ('plain one', 'tag-canary', 'category-canary', 'user-canary', 'keyword-canary', false, NULL),
            ('plain two', '', 'facts', 'me', '', false, NULL),
            ('sensitive-canary', '', 'facts', 'me', '', true, NULL),
            ('deleted-canary', '', 'facts', 'me', '', false, now()),
            ('sensitive-canary deleted-canary', '', 'facts', 'me', '', true, now())
        """
    )


async def test_only_texts_that_may_be_sent_are_sent_without_other_fields_of_their_rows(bench: Workbench) -> None:
    await store_canaries(bench)
    result = await fill(bench)
    assert result.tally.embedded == 2
    assert await bench.problems() == []
    heard = provider(bench).heard.decode()
    assert [canary for canary in CANARIES if canary in heard] == []
    assert provider(bench).bodies == [
        {
            "input": ["plain one", "plain two"],
            "model": "voyage-test",
            "input_type": "document",
            "output_dimension": DIMENSIONS,
            "truncation": True,
            "encoding_format": "base64",
        }
    ]
    assert f"authorization: bearer {KEY}" in heard.lower()


@pytest.mark.promise("no-sensitive-text-to-a-model")
@pytest.mark.parametrize("change", ["is_sensitive = true", "deleted_at = now()", "content = 'edited meanwhile'"])
@pytest.mark.parametrize("limits", [BatchLimits(rows=1), BatchLimits()], ids=["of two batches", "of one batch"])
async def test_a_row_that_changes_during_an_earlier_request_is_not_sent(
    bench: Workbench, change: str, limits: BatchLimits
) -> None:
    """The provider takes one text in a request, so that a batch of two becomes two requests."""
    await bench.insert("first", "second-canary")
    provider(bench).hold_after(0)
    task = asyncio.create_task(fill(bench, bench.with_options(limits=limits, concurrency=1), batch=1))
    await provider(bench).held.wait()
    await bench.execute(f"UPDATE memories SET {change} WHERE content = 'second-canary'")
    provider(bench).release()
    result = await task
    assert b"second-canary" not in provider(bench).heard
    assert result.tally.changed == 1
    assert await bench.problems() == []


async def test_another_hosted_model_under_the_same_name_adds_no_vector(bench: Workbench) -> None:
    """A provider names no file, so the vectors of a few fixed texts are compared with those that were recorded."""
    await bench.insert("one")
    await fill(bench)
    await bench.insert("two")
    provider(bench).identity = "other: "
    with pytest.raises(ModelMismatch, match="another model"):
        await fill(bench)
    assert await bench.embedded() == 1
    provider(bench).identity = ""
    await fill(bench)
    assert await bench.embedded() == 2


async def test_a_hosted_model_that_is_exchanged_while_a_worker_runs_is_noticed_within_the_hour(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here each batch is an hour after the one before."""
    monkeypatch.setattr(hosted_embedder, "_IDENTIFIED_SECONDS", -1.0)
    await bench.insert(*map(str, range(20)))

    def exchanged(_texts: list[str]) -> None:
        provider(bench).identity = "other: "

    provider(bench).behaviour = exchanged
    with pytest.raises(ModelMismatch, match="another model"):
        await fill(bench, bench.with_options(limits=BatchLimits(rows=4), concurrency=1))
    assert await bench.embedded() < 20


async def test_a_model_that_could_not_be_identified_is_asked_for_again_before_more_is_sent(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the vectors would go on for an hour under what was known of the model before."""
    tried: list[str] = []

    async def unavailable() -> ServedModel:
        tried.append("model_info")
        raise EmbedderUnavailable("The provider is away.", "Wait.")

    await bench.insert("one")
    async with hosted(bench) as embedder:
        await embedder.model_info()
        embedder._identified_at = -2 * hosted_embedder._IDENTIFIED_SECONDS
        monkeypatch.setattr(embedder._client, "model_info", unavailable)
        for _ in range(2):
            with pytest.raises(EmbedderUnavailable):
                await embedder.embed_rows([PendingRow(1, "one", "hash")])
    assert (len(tried), provider(bench).bodies) == (2, [])


@pytest.mark.parametrize("salt", ["", "other: "], ids=["the same model", "another model"])
async def test_rows_of_a_model_with_a_file_are_compared_with_the_hosted_one_before_it_embeds_more(
    bench: Workbench, salt: str
) -> None:
    """Of the stored rows only those are sent that may leave, as in any other request."""
    await bench.insert("one", "two")
    await fill(bench)
    await bench.execute("UPDATE memory_index_models SET digest = 'sha256:aa'")
    await bench.execute("INSERT INTO memories (content, is_sensitive) VALUES ('sensitive-canary', true)")
    await bench.insert("three")
    provider(bench).salt = salt
    provider(bench).bodies.clear()
    if salt:
        with pytest.raises(ModelMismatch, match="cosine"):
            await fill(bench)
    else:
        await fill(bench)
    recorded = await bench.value("SELECT digest FROM memory_index_models")
    assert (await bench.embedded(), recorded.startswith("canary:")) == ((2, False) if salt else (3, True))
    sent = [body["input"] for body in provider(bench).bodies]
    assert sent == ([["one", "two"]] if salt else [["one", "two"], ["three"]])


@pytest.mark.promise("no-sensitive-text-to-a-model")
async def test_a_stored_row_that_becomes_sensitive_is_not_compared_with_a_hosted_model(bench: Workbench) -> None:
    await bench.insert("second-canary")
    await fill(bench)
    async with hosted(bench) as embedder:
        connection = await asyncpg.connect(bench.database.dsn)
        table = await describe(connection, "memories")
        stored = await read_stored_vectors(connection, table, ACTIVE, 4)
        await bench.execute("UPDATE memories SET is_sensitive = true")
        provider(bench).heard = b""
        assert await embedder.embed_rows([one.row for one in stored]) == ([], None)
        await connection.close()
    assert [one.row.text for one in stored] == ["second-canary"]
    assert provider(bench).heard == b""


async def test_an_answered_request_of_a_batch_is_not_repeated_when_a_later_one_is_refused(bench: Workbench) -> None:
    await bench.insert("one", "two")
    busy = iter([True])
    provider(bench).behaviour = lambda texts: (503, {}, b"{}") if texts == ["two"] and next(busy, False) else None
    result = await fill(bench, bench.with_options(concurrency=1), batch=1)
    assert [body["input"] for body in provider(bench).bodies] == [["one"], ["two"], ["two"]]
    assert result.tally.embedded == 2
    assert await bench.problems() == []


async def test_a_row_that_becomes_sensitive_while_the_provider_is_busy_is_not_sent_again(bench: Workbench) -> None:
    await bench.insert("kept", "hidden-canary")
    busy = iter([True])
    provider(bench).behaviour = lambda _texts: (429, {"retry-after": "30"}, b"{}") if next(busy, False) else None
    provider(bench).hold_after(0)
    options = replace(bench.plan.options, concurrency=1)
    async with hosted(bench) as embedder:
        embedder._longest_pause = 0.5
        task = asyncio.create_task(
            backfill(
                DsnText(bench.database.dsn),
                embedder,
                replace(bench.plan, options=options),
                progress=bench.ear,
                stop=bench.stop,
            )
        )
        await provider(bench).held.wait()
        await bench.execute("UPDATE memories SET is_sensitive = true WHERE content = 'hidden-canary'")
        provider(bench).release()
        await task
    assert await bench.problems() == []
    assert provider(bench).heard.count(b"hidden-canary") == 1, "it was allowed when it was first sent, and not again"


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_refused_request_is_repeated_after_the_requested_delay(bench: Workbench, status: int) -> None:
    await bench.insert("one", "two")
    left = iter([True, True, True])
    provider(bench).behaviour = lambda _texts: (status, {"retry-after": "0.01"}, b"{}") if next(left, False) else None
    result = await fill(bench)
    assert (result.tally.embedded, result.tally.failed_batches) == (2, 0)
    assert len(provider(bench).bodies) == 4
    assert bench.ear.outages == [], "the client's own retries last that long"


async def test_a_refused_key_ends_the_backfill_with_the_remedy_and_without_the_key(bench: Workbench) -> None:
    await bench.insert("one")
    provider(bench).behaviour = lambda _texts: (401, {}, json.dumps({"detail": f"bad key {KEY}"}).encode())
    with pytest.raises(EmbedderUnauthorized, match="Secret") as caught:
        await fill(bench)
    assert KEY not in str(caught.value)


async def test_vectors_of_another_length_are_refused_and_none_is_stored(bench: Workbench) -> None:
    await bench.insert("one")
    provider(bench).dimensions = 16
    with pytest.raises(MemoryIndexError, match="16 dimensions"):
        await fill(bench)
    assert await bench.embedded() == 0


async def test_a_long_list_becomes_requests_within_the_limits_in_order(bench: Workbench) -> None:
    texts = [f"text {number} " + "word " * (60_000 if number == 4 else 1) for number in range(10)]
    async with voyage_client("voyage-test", DIMENSIONS, KEY, base_url=bench.embedder.url, batch=3) as client:
        answer = await client.embed_documents(texts)
    assert len(answer.vectors) == 10
    sent = [body["input"] for body in provider(bench).bodies]
    assert [len(part) for part in sent] == [3, 1, 1, 3, 2]
    assert [text for part in sent for text in part] == texts


def settings(bench: Workbench, folder: Path, **more: str) -> dict[str, str]:
    (folder / "key").write_text(f"{KEY}\n", encoding="utf-8")
    voyage = {
        "MEMORY_MODEL": "voyage-test",
        "MEMORY_QUERY_EGRESS": "allowed",
        "MEMORY_EMBEDDER_URL": bench.embedder.url,
        "MEMORY_EMBEDDER_API": "Voyage",
        "MEMORY_EMBEDDER_API_KEY_FILE": str(folder / "key"),
    }
    return {**bench.environment(), **voyage, **more}


@pytest.mark.promise("hosted-provider-by-consent")
@pytest.mark.parametrize("arguments", [("backfill",), ("recall", "a question", "--everyone")])
async def test_without_consent_nothing_is_sent(bench: Workbench, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    await bench.insert("one")
    ended = await run_memory([*arguments, "--json"], settings(bench, tmp_path, MEMORY_QUERY_EGRESS="denied"))
    assert ended.status == 2
    assert "queryEgress: Allowed" in json.loads(ended.errors)["message"]
    assert provider(bench).heard == b""


async def test_the_command_embeds_through_the_provider_and_prints_neither_key_nor_text(
    bench: Workbench, tmp_path: Path
) -> None:
    await store_canaries(bench)
    ended = await run_memory(["backfill", "--json"], settings(bench, tmp_path))
    assert ended.status == 0, ended.errors
    assert json.loads(ended.output)["embedded"] == 2
    said = (ended.output + ended.errors).decode()
    assert [secret for secret in (*CANARIES, KEY, "plain") if secret in said] == []
    assert await bench.problems() == []


@asynccontextmanager
async def recalling(bench: Workbench, embedder: Any) -> AsyncIterator[HybridRecall]:
    pool = await create_pool(DsnText(bench.database.dsn))
    recall = HybridRecall(pool, embedder, RecallOptions(require_index=False, embedding_budget=5.0, time_budget=60.0))
    try:
        yield recall
    finally:
        await recall.close()
        await pool.close()


@asynccontextmanager
async def asking(bench: Workbench, key: ApiKey = KEY) -> AsyncIterator[HybridRecall]:
    client = voyage_client("voyage-test", DIMENSIONS, key, base_url=bench.embedder.url)
    async with client, recalling(bench, client) as recall:
        yield recall


@pytest.mark.promise("sensitive-query-stays")
async def test_a_sensitive_query_is_never_sent_and_is_answered_lexically(bench: Workbench) -> None:
    await bench.insert("the kettle is descaled with vinegar", "the kettle stands in the kitchen", "unrelated")
    await fill(bench)
    provider(bench).heard = b""
    async with asking(bench) as recall:
        secret = await recall.recall(make_query("kettle vinegar", sensitive=True))
        words = await recall.recall(make_query("kettle vinegar", mode="lexical"))
        assert provider(bench).heard == b""
        assert (secret.reason, secret.ids) == (Degraded.SENSITIVE_QUERY, words.ids)
        open_one = await recall.recall(make_query("kettle vinegar"))
    assert open_one.reason is None
    assert [(body["input"], body["input_type"]) for body in provider(bench).bodies[1:]] == [
        (["kettle vinegar"], "query")
    ]


async def test_a_local_embedder_embeds_a_sensitive_query(bench: Workbench) -> None:
    await bench.insert("the kettle is descaled with vinegar")
    await fill(bench)

    class Ours:
        model = "voyage-test"

        async def embed_query(self, _text: str) -> list[float]:
            return [1.0] * DIMENSIONS

    async with recalling(bench, Ours()) as recall:
        assert (await recall.recall(make_query("kettle", sensitive=True))).reason is None


async def test_the_recall_command_and_the_route_accept_sensitive_queries(bench: Workbench, tmp_path: Path) -> None:
    from fastapi import FastAPI
    from httpx import ASGITransport, AsyncClient

    from memory_recall.contrib.fastapi import create_recall_router

    await bench.insert("the kettle is descaled with vinegar")
    await fill(bench)
    provider(bench).heard = b""
    asked = ("recall", "query-canary kettle", "--everyone", "--sensitive", "--json")
    ended = await run_memory(asked, settings(bench, tmp_path))
    assert ended.status == 0, ended.errors
    report = json.loads(ended.output)
    assert (report["reason"], len(report["memories"])) == ("SensitiveQuery", 1)
    application = FastAPI()
    async with asking(bench) as recall:
        application.include_router(create_recall_router(recall, current_user=lambda: "default"))
        async with AsyncClient(transport=ASGITransport(application), base_url="http://api") as api:
            answer = await api.post(
                "/api/memories/recall", json={"context": "query-canary kettle", "is_sensitive": True}
            )
    assert [memory["id"] for memory in answer.json()["memories"]] == [1]
    assert provider(bench).heard == b""


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """The provider's key as a file, as pods have it."""
    file = tmp_path / "rotated"
    file.write_text(KEY, encoding="utf-8")
    return file


def spoil(key_file: Path, *, lost: bool) -> None:
    key_file.unlink() if lost else key_file.write_text("revoked", encoding="utf-8")


def rotate(key_file: Path) -> None:
    key_file.write_text("rotated-key", encoding="utf-8")


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "lost"])
async def test_without_the_right_key_recalls_are_lexical_with_the_reason_until_the_key_is_right_again(
    bench: Workbench, key_file: Path, lost: bool
) -> None:
    await bench.insert("the kettle is descaled with vinegar", "the kettle stands in the kitchen", "unrelated")
    await fill(bench)
    provider(bench).accepted_key = KEY
    async with asking(bench, key_file) as recall:
        assert (await recall.recall(make_query("kettle vinegar"))).reason is None
        spoil(key_file, lost=lost)
        lexical = await recall.recall(make_query("kettle vinegar", mode="lexical"))
        for _ in range(3):
            answer = await recall.recall(make_query("kettle vinegar"))
            assert (answer.reason, answer.ids) == (Degraded.EMBEDDER_UNAUTHORIZED, lexical.ids)
        rotate(key_file)
        provider(bench).accepted_key = "rotated-key"
        async with asyncio.timeout(60):
            while (await recall.recall(make_query("kettle vinegar"))).reason is not None:  # noqa: ASYNC110  (a probe finds out)
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "lost"])
async def test_without_the_right_key_writes_wait_and_are_embedded_with_the_next_key_without_a_restart(
    bench: Workbench, key_file: Path, lost: bool
) -> None:
    """No row is blamed, and the rows that wait are read again before they are sent."""
    provider(bench).accepted_key = KEY
    async with hosted(bench, key_file) as embedder:
        directory = EmbedderDirectory(embedder, EmbedderClient, model="voyage-test", url=bench.embedder.url)
        working = asyncio.create_task(
            sync(
                DsnText(bench.database.dsn), directory, bench.plan,
                poll_seconds=3600, progress=bench.ear, stop=bench.stop,
            )
        )  # fmt: skip
        await bench.insert("before")
        await bench.until_embedded(1)
        spoil(key_file, lost=lost)
        await bench.insert("waits", "hidden-canary")
        await until(lambda: "EmbedderUnauthorized" in bench.ear.reasons)
        await bench.execute("UPDATE memories SET is_sensitive = true WHERE content = 'hidden-canary'")
        assert await bench.embedded() == 1
        assert await bench.value("SELECT count(*) FROM memory_embedding_failures") == 0
        provider(bench).heard = b""
        rotate(key_file)
        provider(bench).accepted_key = "rotated-key"
        await bench.until_embedded(2)
        assert not working.done()
        bench.stop.set()
        await working
    assert await bench.problems() == []
    assert b"hidden-canary" not in provider(bench).heard


async def test_the_recall_command_answers_lexically_where_the_key_is_lost(bench: Workbench, tmp_path: Path) -> None:
    await bench.insert("the kettle is descaled with vinegar")
    await fill(bench)
    await build_index(DsnText(bench.database.dsn), "memories", INDEX)
    environment = settings(bench, tmp_path, MEMORY_EMBEDDER_API_KEY_FILE="/no/such/key")
    ended = await run_memory(("recall", "kettle", "--everyone", "--json"), environment)
    assert ended.status == 0, ended.errors
    report = json.loads(ended.output)
    assert (report["reason"], len(report["memories"])) == ("EmbedderUnauthorized", 1)
