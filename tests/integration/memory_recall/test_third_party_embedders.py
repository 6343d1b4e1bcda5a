"""A whole index over a third-party embedder: rows are embedded, recalled by meaning, and no text goes too far."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
from pgvector.asyncpg import register_vector

from memory_recall import (
    EmbeddedQuery,
    EmbedderApi,
    EmbedderClient,
    EmbedderOptions,
    ExternalEmbedder,
    FollowingEmbedder,
    HybridRecall,
    RecallOptions,
    create_pool,
)
from memory_recall.embedding import external_client
from memory_recall.errors import ModelMismatch
from memory_recall.indexing import stored_vectors
from memory_recall.indexing.backfill import backfill
from memory_recall.indexing.embedders import EmbedderDirectory
from memory_recall.indexing.stored_vectors_sql import StoredVector
from memory_recall.indexing.sync import sync
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.search.result import Degraded
from tests.integration.conftest import CopyOf
from tests.integration.memory_recall.fake_embedder import vector_of
from tests.integration.memory_recall.openai_server import OpenAiServer
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench
from tests.support.memory_command import run_memory

pytestmark = pytest.mark.finding("mission 4.3")

MODEL = "multilingual-e5-small"  # both of its prefixes count
SERVED_AS = "org/model-GGUF"
QUERY, DOCUMENT = "query: ", "passage: "


@pytest.fixture
async def bench(copy_of: CopyOf, request_for: Callable[..., MigrationRequest]) -> AsyncIterator[Workbench]:
    """A database of the model, and the server that serves it."""
    request = request_for(model=MODEL)
    database = await copy_of("migrated for a third-party embedder", lambda empty: migrate(DsnText(empty.dsn), request))
    async with OpenAiServer(dimensions=DIMENSIONS) as server:
        yield Workbench(database, server)


def server_of(bench: Workbench) -> OpenAiServer:
    assert isinstance(bench.embedder, OpenAiServer)
    return bench.embedder


async def command(bench: Workbench, *arguments: str, **more: str) -> tuple[int | None, dict[str, Any]]:
    """Run a command with JSON output; settings that are empty are not set."""
    asked = {"MEMORY_MODEL": MODEL, "MEMORY_EMBEDDER_API": "OpenAI", "MEMORY_EMBEDDER_SERVED_AS": SERVED_AS, **more}
    given = {name: value or None for name, value in {**bench.environment(), **asked}.items()}
    ended = await run_memory([*arguments, "--json"], given)
    return ended.status, json.loads(ended.errors if ended.status else ended.output)


async def vectors(bench: Workbench) -> dict[str, "np.ndarray[Any, Any]"]:
    async with bench.database.connection() as connection:
        await register_vector(connection)
        rows = await connection.fetch("SELECT content, embedding FROM memories WHERE embedding IS NOT NULL")
    return {row["content"]: row["embedding"].to_numpy() for row in rows}


async def test_rows_are_embedded_with_the_models_prefix_as_vectors_of_length_one(bench: Workbench) -> None:
    """A text that is longer than the server takes has the vector of its beginning, and is counted as truncated."""
    long = "the boiler of the house " * 100
    await bench.insert("one", "two", long)
    await bench.execute("INSERT INTO memories (content, is_sensitive) VALUES ('SECRET', true)")
    code, result = await command(bench, "backfill")
    assert (code, result["embedded"], result["truncated"]) == (0, 3, 1), result
    found = await vectors(bench)
    for text in ("one", "two"):
        assert np.allclose(found[text], vector_of(DOCUMENT + text, DIMENSIONS), atol=1e-3)
    assert np.allclose(found[long], vector_of(DOCUMENT + long[: len(long) // 4], DIMENSIONS), atol=1e-3)
    assert not [text for text in server_of(bench).received if "SECRET" in text]


@pytest.mark.parametrize("change", ["another name", "another length"])
async def test_a_server_of_another_model_embeds_nothing_and_is_named(bench: Workbench, change: str) -> None:
    await bench.insert("one")
    if change == "another name":
        server_of(bench).served_as = "org/other"
    else:
        server_of(bench).dimensions = DIMENSIONS + 1
    code, error = await command(bench, "backfill")
    assert code not in {0, None}
    assert error["reason"] == ("ModelMismatch" if change == "another name" else "DimensionMismatch"), error
    assert "org/other" in error["message"] if change == "another name" else "9 dimensions" in error["message"]
    assert await bench.embedded() == 0


@pytest.mark.parametrize("change", ["another model", "a prefix that is missing"])
async def test_another_model_or_another_use_of_it_under_the_same_name_adds_no_vector(
    bench: Workbench, change: str
) -> None:
    """The server names no file, so the vectors of a few fixed texts are compared with those that were recorded."""
    await bench.insert("one")
    assert (await command(bench, "backfill"))[0] == 0
    await bench.insert("two")
    more = {"MEMORY_EMBEDDER_DOCUMENT_PREFIX": " "}
    if change == "another model":
        server_of(bench).salt, more = "other: ", {}
    code, error = await command(bench, "backfill", **more)
    assert (code, error["reason"]) == (4, "ModelMismatch"), error
    assert "another model" in error["message"]
    assert await bench.embedded() == 1
    server_of(bench).salt = ""
    assert (await command(bench, "backfill"))[0] == 0
    assert await bench.embedded() == 2


async def test_a_model_that_is_exchanged_while_a_worker_runs_is_noticed_within_the_hour(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here each request is an hour after the one before."""
    monkeypatch.setattr(external_client, "_CANARY_SECONDS", -1.0)
    await bench.insert(*map(str, range(20)))
    server, requests = server_of(bench), 0

    def exchanged(texts: list[str]) -> None:
        nonlocal requests
        requests += any(text.startswith(DOCUMENT) and text.removeprefix(DOCUMENT).isdigit() for text in texts)
        server.salt = "other: " if requests > 1 else ""

    server.seen = exchanged
    options = EmbedderOptions(EmbedderApi.OPENAI, served_as=SERVED_AS)
    async with ExternalEmbedder(server.url, MODEL, options=options) as embedder:
        with pytest.raises(ModelMismatch, match="another model"):
            await backfill(
                DsnText(bench.database.dsn), embedder, bench.with_options(concurrency=1),
                progress=bench.ear, stop=bench.stop,
            )  # fmt: skip
    assert await bench.embedded() < 20


@pytest.mark.parametrize("salt", ["", "other: "], ids=["the same model", "another model"])
@pytest.mark.parametrize(
    "texts", [("one", "two", "x" * 2000), ("x" * 401, "y" * 500, "z" * 600)], ids=["short texts", "long texts"]
)
async def test_rows_that_a_memory_embedder_embedded_are_compared_before_a_third_party_one_embeds_more(
    bench: Workbench, texts: tuple[str, ...], salt: str
) -> None:
    """A file's digest and a canary cannot be compared, so that a few stored vectors are, or that of the shortest."""
    await bench.insert(*texts)
    assert (await command(bench, "backfill"))[0] == 0
    await bench.execute("UPDATE memory_index_models SET digest = 'sha256:aa'")
    await bench.insert("three")
    server_of(bench).salt = salt
    server_of(bench).received.clear()
    code, report = await command(bench, "backfill")
    recorded = await bench.value("SELECT digest FROM memory_index_models")
    if salt:
        assert (code, report["reason"], "cosine" in report["message"]) == (4, "ModelMismatch", True)
        assert (await bench.embedded(), recorded) == (3, "sha256:aa")
        assert DOCUMENT + texts[-1] not in server_of(bench).received, "servers may truncate it in different places"
    else:
        assert (code, await bench.embedded()) == (0, 4)
        assert recorded.startswith("canary:"), "from now on the canary is compared"


async def test_where_the_rows_to_compare_may_not_be_sent_any_more_others_are_compared(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.insert("one", "two", "x" * 500)
    assert (await command(bench, "backfill"))[0] == 0
    await bench.execute("UPDATE memory_index_models SET digest = 'sha256:aa'")
    read = stored_vectors.read_stored_vectors

    async def read_and_mark(*arguments: Any, **options: Any) -> list[StoredVector]:
        found = await read(*arguments, **options)
        await bench.execute("UPDATE memories SET is_sensitive = true WHERE content IN ('one', 'two')")
        return found

    monkeypatch.setattr(stored_vectors, "read_stored_vectors", read_and_mark)
    server = server_of(bench)
    server.salt = "other: "
    server.received.clear()
    async with ExternalEmbedder(
        server.url, MODEL, options=EmbedderOptions(EmbedderApi.OPENAI, served_as=SERVED_AS)
    ) as embedder:
        with pytest.raises(ModelMismatch, match="cosine"):
            await backfill(DsnText(bench.database.dsn), embedder, bench.plan, progress=bench.ear, stop=bench.stop)
    assert (server.received[f"{DOCUMENT}one"], server.received[DOCUMENT + "x" * 500]) == (0, 1)


async def test_a_table_without_vectors_takes_whatever_embedder_serves_its_model(bench: Workbench) -> None:
    await bench.execute("UPDATE memory_index_models SET digest = 'sha256:aa'")
    await bench.insert("one")
    assert (await command(bench, "backfill"))[0] == 0
    assert (await bench.value("SELECT digest FROM memory_index_models")).startswith("canary:")


@pytest.mark.promise("hosted-provider-by-consent")
async def test_the_address_of_a_third_party_embedder_is_not_recorded_and_one_of_ours_is_forgotten_for_it(
    bench: Workbench,
) -> None:
    """Who follows a recorded address asks a memory-embedder there; a gateway might pass such a request on."""
    await bench.execute("UPDATE memory_index_models SET embedder_url = 'http://embedder:8080'")
    await bench.insert("a text")
    options = EmbedderOptions(EmbedderApi.OPENAI, served_as=SERVED_AS)
    server = DsnText(bench.database.dsn)
    async with (
        ExternalEmbedder(bench.embedder.url, MODEL, options=options) as embedder,
        EmbedderDirectory(
            embedder, EmbedderClient, model=MODEL, url=bench.embedder.url, api=EmbedderApi.OPENAI
        ) as ways,
    ):
        working = asyncio.create_task(
            sync(server, ways, bench.plan, poll_seconds=3600, progress=bench.ear, stop=bench.stop)
        )
        await bench.until_embedded(1)
        bench.stop.set()
        await working
    assert await bench.value("SELECT embedder_url FROM memory_index_models") is None


async def test_a_query_of_our_embedder_is_compared_with_vectors_of_a_model_that_is_known_by_a_canary(
    bench: Workbench,
) -> None:
    """Whether both have one file is not known, so workers and recalls refuse neither."""
    await bench.insert("one")
    assert (await command(bench, "backfill"))[0] == 0
    pool = await create_pool(DsnText(bench.database.dsn))
    recall = HybridRecall(pool, None, RecallOptions(require_index=False, time_budget=60.0))
    try:
        vector = vector_of(DOCUMENT + "one", DIMENSIONS).tolist()
        for digest in ("sha256:aa", None):
            result = await recall.recall(make_query("what", mode="dense", vector=EmbeddedQuery(vector, MODEL, digest)))
            assert (result.reason, len(result.ids)) == (None, 1), digest
        unnamed = EmbeddedQuery(vector, None, "sha256:aa")  # of which nothing could be compared
        found = await recall.recall(make_query("what", mode="dense", vector=unnamed))
        assert found.reason == "ModelMismatch"
    finally:
        await recall.close()
        await pool.close()


async def test_a_third_party_server_that_is_taken_for_ours_is_refused_and_the_setting_named(
    bench: Workbench,
) -> None:
    await bench.insert("one")
    code, error = await command(bench, "backfill", MEMORY_EMBEDDER_API="", MEMORY_EMBEDDER_SERVED_AS="")
    assert code not in {0, None}
    assert error["reason"] == "EmbedderBroken"
    assert await bench.embedded() == 0


@pytest.mark.promise("hosted-provider-by-consent")
@pytest.mark.finding("security S13")
@pytest.mark.parametrize("api", ["OpenAI", "MemoryIndex"])
@pytest.mark.parametrize("arguments", [("backfill",), ("recall", "a question", "--everyone")])
async def test_without_consent_no_text_goes_to_an_embedder_beyond_the_cluster(
    bench: Workbench, api: str, arguments: tuple[str, ...]
) -> None:
    """Whatever speaks there."""
    await bench.insert("one")
    more = {"MEMORY_EMBEDDER_URL": "https://embeddings.saas.example", "MEMORY_EMBEDDER_API": api}
    more |= {"MEMORY_EMBEDDER_SERVED_AS": SERVED_AS if api == "OpenAI" else ""}
    code, error = await command(bench, *arguments, **more)
    assert code == 2, error
    assert "MEMORY_QUERY_EGRESS" in error["message"]


async def test_a_recall_asks_with_the_query_prefix_and_finds_by_meaning(bench: Workbench) -> None:
    await bench.insert("one", "two")
    assert (await command(bench, "backfill"))[0] == 0
    options = EmbedderOptions(EmbedderApi.OPENAI, served_as=SERVED_AS)
    embedder = FollowingEmbedder(bench.embedder.url, MODEL, options=options)
    pool = await create_pool(DsnText(bench.database.dsn))
    recall = HybridRecall(pool, embedder, RecallOptions(require_index=False, embedding_budget=5.0, time_budget=60.0))
    try:
        result = await recall.recall(make_query("three", mode="dense"))
        assert (result.degraded, len(result.ids)) == (False, 2)
        assert server_of(bench).received[f"{QUERY}three"] == 1
        await bench.embedder.stop()
        assert (await recall.recall(make_query("three"))).reason is Degraded.EMBEDDER_FAILED
    finally:
        await recall.close()
        await pool.close()
        await embedder.close()


async def test_a_wrong_query_prefix_is_told_by_a_backfill_with_the_settings_of_an_api_and_not_by_its_recalls(
    bench: Workbench,
) -> None:
    await bench.insert("one")
    assert (await command(bench, "backfill"))[0] == 0
    options = EmbedderOptions(EmbedderApi.OPENAI, served_as=SERVED_AS, query_prefix="wrong: ")
    embedder = FollowingEmbedder(bench.embedder.url, MODEL, options=options)
    pool = await create_pool(DsnText(bench.database.dsn))
    recall = HybridRecall(pool, embedder, RecallOptions(require_index=False, embedding_budget=5.0, time_budget=60.0))
    try:
        result = await recall.recall(make_query("three", mode="dense"))
        assert (result.degraded, result.reason, len(result.ids)) == (False, None, 1)
    finally:
        await recall.close()
        await pool.close()
        await embedder.close()
    code, error = await command(bench, "backfill", MEMORY_EMBEDDER_QUERY_PREFIX="wrong: ")
    assert (code, error["reason"]) == (4, "ModelMismatch"), error


async def test_a_swap_to_a_third_party_embedder_uses_its_prefix_for_every_row(bench: Workbench) -> None:
    """And a swap back to it after a rollback."""
    await bench.insert("one", "two")
    assert (await command(bench, "backfill"))[0] == 0
    async with OpenAiServer(dimensions=DIMENSIONS) as following:
        following.served_as = "org/next"
        options = ["--url", following.url, "--api", "OpenAI", "--served-as", "org/next"]
        start = ["swap", "start", "--model", "nomic-embed-text-v1.5", *options, "--without-gate"]
        code, result = await command(bench, *start)
        assert (code, result["stage"]) == (0, "flipped"), result
        found = await vectors(bench)
        for text in ("one", "two"):
            assert np.allclose(found[text], vector_of(f"search_document: {text}", DIMENSIONS), atol=1e-3)
        await bench.insert("three")
        back = ["swap", "rollback", "--url", bench.embedder.url, "--api", "OpenAI", "--served-as", SERVED_AS]
        code, result = await command(bench, *back)
        assert code == 0, result
    found = await vectors(bench)
    assert np.allclose(found["three"], vector_of(f"{DOCUMENT}three", DIMENSIONS), atol=1e-3)
