"""Swaps between an embedder of our own and a hosted one, under recalls and writes, through consent and gate."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from memory_recall.embedding.following import FollowingEmbedder
from memory_recall.postgres.connection import create_pool
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.search.result import Degraded, RecallResult
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.swap.conftest import NEXT_SALT, SwapBench
from tests.integration.memory_recall.voyage_server import VoyageServer
from tests.integration.memory_recall.workbench import DIMENSIONS
from tests.support.memory_command import run_memory
from tests.support.voyage import voyage_client

KEY = "pa-key-canary"
HOSTED = ("start", "--model", "voyage-test", "--api", "Voyage", "--dimensions", str(DIMENSIONS))


@pytest.fixture
async def hosted(swaps: SwapBench) -> AsyncIterator[SwapBench]:
    """A table of a local model; the next model is a hosted provider's."""
    async with VoyageServer(dimensions=DIMENSIONS) as provider:
        provider.salt = NEXT_SALT
        provider.accepted_key = KEY
        swaps.following = provider
        yield swaps


def provider(swaps: SwapBench) -> VoyageServer:
    assert isinstance(swaps.following, VoyageServer)
    return swaps.following


def at_provider(swaps: SwapBench, folder: Path) -> tuple[str, ...]:
    """The options that name the hosted embedder and its key."""
    (folder / "key").write_text(KEY, encoding="utf-8")
    return "--url", swaps.following.url, "--api-key-file", str(folder / "key")


async def memory(swaps: SwapBench, *arguments: str, **changes: str) -> tuple[int | None, Any, str]:
    given = {**swaps.work.environment(), "MEMORY_QUERY_EGRESS": "allowed", **changes}
    ended = await run_memory([*arguments, "--json"], {name: value or None for name, value in given.items()})
    return ended.status, json.loads(ended.output) if ended.output else None, ended.errors.decode()


@pytest.fixture
def gate(tmp_path: Path) -> tuple[str, ...]:
    """Each text is the answer to itself."""
    lines = [{"query_id": str(n), "text": f"text {n}", "relevant_ids": [n + 1]} for n in range(0, 40, 4)]
    path = tmp_path / "queries.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return "--queries", str(path), "--max-drop", "0.05"


@asynccontextmanager
async def under_load(swaps: SwapBench) -> AsyncIterator[list[RecallResult]]:
    """An application that recalls and writes all the while; its results are collected."""
    results: list[RecallResult] = []
    pool = await create_pool(swaps.source)
    hosted = voyage_client("voyage-test", DIMENSIONS, KEY, base_url=swaps.following.url)
    embedder = FollowingEmbedder(swaps.work.embedder.url, "tiny", others=[hosted])
    recall = HybridRecall(pool, embedder, RecallOptions(embedding_budget=5.0, time_budget=60.0))

    async def recalling() -> None:
        while True:
            results.append(await recall.recall(make_query(f"text {len(results) % 40}")))
            await asyncio.sleep(0.01)

    async def writing() -> None:
        number = 0
        while True:
            number += 1
            await swaps.work.insert(f"written {number}")
            sensitive = f"INSERT INTO memories (content, is_sensitive) VALUES ('sensitive-canary {number}', true)"
            await swaps.work.execute(sensitive)
            await asyncio.sleep(0.05)

    load = [asyncio.create_task(recalling()), asyncio.create_task(writing())]
    try:
        yield results
        assert [task for task in load if task.done()] == [], "a recall or a write failed"
    finally:
        for task in load:
            task.cancel()
        await asyncio.wait(load)
        await recall.close()
        await embedder.close()
        await pool.close()


async def answers_by_meaning(results: list[RecallResult], *, after: int) -> None:
    async with asyncio.timeout(60):
        while not any(result.reason is None for result in results[after:]):  # noqa: ASYNC110  (the load goes on)
            await asyncio.sleep(0.02)


async def test_a_swap_to_a_hosted_model_and_back_serves_recalls_and_writes_all_the_while(
    hosted: SwapBench, tmp_path: Path, gate: tuple[str, ...]
) -> None:
    """No recall fails or compares across models, and the provider never hears of a sensitive row."""
    async with under_load(hosted) as results:
        code, report, error = await memory(hosted, "swap", *HOSTED, *at_provider(hosted, tmp_path), *gate)
        assert code == 0, error
        assert (report["stage"], report["active"], report["gate"]["outcome"]) == ("flipped", "voyage-test", "passed")
        await answers_by_meaning(results, after=len(results))
        active = {
            "MEMORY_MODEL": "voyage-test",
            "MEMORY_EMBEDDER_URL": hosted.following.url,
            "MEMORY_EMBEDDER_API": "Voyage",
            "MEMORY_EMBEDDER_API_KEY_FILE": str(tmp_path / "key"),
        }
        back = ("start", "--model", "tiny", "--url", hosted.work.embedder.url, "--without-api-key", *gate)
        code, report, error = await memory(hosted, "swap", *back, **active)
        assert code == 0, error
        assert (report["stage"], report["active"], report["gate"]["outcome"]) == ("flipped", "tiny", "passed")
        await answers_by_meaning(results, after=len(results))
    await hosted.work.backfill()
    assert {result.reason for result in results} <= {None, Degraded.MODEL_MISMATCH}
    assert await hosted.problems() == []
    assert b"sensitive-canary" not in provider(hosted).heard
    roles = await hosted.roles()
    assert roles.active is not None
    assert roles.active.embedder_url == hosted.work.embedder.url


async def test_a_sensitive_query_stays_in_the_cluster_when_a_recall_follows_to_a_hosted_model(
    hosted: SwapBench, tmp_path: Path
) -> None:
    """The application asked an embedder of its own a moment ago, to which a sensitive query may go."""
    code, _, error = await memory(hosted, "swap", *HOSTED, *at_provider(hosted, tmp_path), "--without-gate")
    assert code == 0, error
    provider(hosted).heard = b""
    pool = await create_pool(hosted.source)
    client = voyage_client("voyage-test", DIMENSIONS, KEY, base_url=hosted.following.url)
    embedder = FollowingEmbedder(hosted.work.embedder.url, "tiny", others=[client])
    recall = HybridRecall(pool, embedder, RecallOptions(embedding_budget=5.0, time_budget=60.0))
    try:
        for _ in range(2):
            secret = await recall.recall(make_query("text canary", sensitive=True))
            assert secret.reason is Degraded.SENSITIVE_QUERY
        assert provider(hosted).heard == b""
        assert (await recall.recall(make_query("text 1"))).reason is None
    finally:
        await recall.close()
        await embedder.close()
        await pool.close()


async def test_an_application_without_a_hosted_client_is_answered_lexically_and_sends_nothing(
    hosted: SwapBench, tmp_path: Path
) -> None:
    """What the database records must not make it send queries out of the cluster."""
    code, _, error = await memory(hosted, "swap", *HOSTED, *at_provider(hosted, tmp_path), "--without-gate")
    assert code == 0, error
    active = (await hosted.roles()).active
    assert active is not None
    assert (active.name, active.embedder_url) == ("voyage-test", None)
    provider(hosted).heard = b""
    pool = await create_pool(hosted.source)
    embedder = FollowingEmbedder(hosted.work.embedder.url, "tiny")
    recall = HybridRecall(pool, embedder, RecallOptions(embedding_budget=5.0, time_budget=60.0))
    try:
        assert (await recall.recall(make_query("text 1"))).reason is Degraded.MODEL_MISMATCH
    finally:
        await recall.close()
        await embedder.close()
        await pool.close()
    assert provider(hosted).heard == b""


@pytest.mark.parametrize(
    ("egress", "key", "answer"),
    [("denied", "key", (2, "MEMORY_QUERY_EGRESS=allowed")), ("allowed", "no such key", (4, "no such key"))],
)
async def test_without_consent_or_key_a_swap_to_a_hosted_model_sends_nothing_and_changes_nothing(
    hosted: SwapBench, tmp_path: Path, egress: str, key: str, answer: tuple[int, str]
) -> None:
    url, address, option, file = at_provider(hosted, tmp_path)
    where = (url, address, option, str(Path(file).with_name(key)))
    given = await memory(hosted, "swap", *HOSTED, *where, "--without-gate", MEMORY_QUERY_EGRESS=egress)
    assert (given[0], answer[1] in given[2]) == (answer[0], True), given[2]
    assert provider(hosted).heard == b""
    roles = await hosted.roles()
    assert roles.active is not None
    assert roles.active.name == "tiny"


async def test_the_gate_refuses_a_worse_hosted_model(hosted: SwapBench, tmp_path: Path, gate: tuple[str, ...]) -> None:
    """The local model stays active, and `memory swap status` has the numbers."""
    requests = itertools.count()

    def confused(_texts: list[str]) -> None:
        hosted.following.salt = f"confused {next(requests)}"

    hosted.following.behaviour = confused
    code, _, error = await memory(hosted, "swap", *HOSTED, *at_provider(hosted, tmp_path), *gate)
    assert (code, "SwapRefused" in error) == (4, True), error
    _, report, _ = await memory(hosted, "swap", "status")
    assert (report["active"], report["stage"], report["gate"]["outcome"]) == ("tiny", "refused", "refused")
