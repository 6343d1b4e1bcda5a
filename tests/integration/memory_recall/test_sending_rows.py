"""Whether a row's text may be sent is asked once a connection to the embedder is established, at each attempt."""

import asyncio
import json

import pytest

from memory_recall.embedding.client import EmbedderClient
from memory_recall.errors import EmbedderUnavailable
from memory_recall.indexing.pipeline import BatchLimits
from tests.integration.memory_recall.fake_embedder import Answer
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench, until
from tests.support.loopback_server import LoopbackServer

CANARY = "canary-of-a-memory"
DRAINING = (503, {}, json.dumps({"error": {"message": "m", "type": "t", "code": "draining"}}).encode())

pytestmark = pytest.mark.promise("no-sensitive-text-to-a-model")


class Recorder(LoopbackServer):
    """Keeps what it is sent, and answers nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = b""
        self.gone = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(65536):
            self.heard += part
        self.gone.set()


async def test_nothing_of_the_texts_is_sent_before_the_question_is_answered_nor_after_a_refusal() -> None:
    async with Recorder() as server:

        async def refuse() -> None:
            await until(lambda: b"\r\n\r\n" in server.heard)
            raise KeyError("withheld")

        async with EmbedderClient(f"http://127.0.0.1:{server.port}", dimensions=DIMENSIONS) as client:
            with pytest.raises(KeyError, match="withheld"):
                await client.embed_documents([CANARY], before_sending=refuse)
        async with asyncio.timeout(10):
            await server.gone.wait()
        assert CANARY.encode() not in server.heard


async def test_a_request_that_is_sent_again_because_the_pod_is_stopped_is_asked_about_again(bench: Workbench) -> None:
    asked = 0

    async def count() -> None:
        nonlocal asked
        asked += 1

    async with EmbedderClient(bench.embedder.url, dimensions=DIMENSIONS) as client:
        await client.embed_documents(["first"])
        bench.embedder.behaviour = lambda _texts: DRAINING
        with pytest.raises(EmbedderUnavailable):
            await client.embed_documents([CANARY], before_sending=count)
    assert asked == bench.embedder.requests - 1 > 2


@pytest.mark.parametrize("change", ["is_sensitive = true", "deleted_at = now()", "content = 'edited meanwhile'"])
async def test_a_row_that_changes_after_it_was_read_is_not_sent(bench: Workbench, change: str) -> None:
    await bench.insert("first", CANARY)
    bench.embedder.hold_after(0)
    task = asyncio.create_task(bench.backfill(bench.with_options(limits=BatchLimits(rows=1), concurrency=1)))
    await bench.embedder.held.wait()
    await bench.execute(f"UPDATE memories SET {change} WHERE content = '{CANARY}'")
    bench.embedder.release()
    assert (await task).tally.changed == 1
    assert CANARY not in bench.embedder.received


@pytest.mark.parametrize("refusal", [(429, {"retry-after": "1"}, b"{}"), DRAINING], ids=["busy", "draining"])
async def test_a_row_that_becomes_sensitive_between_two_attempts_is_not_sent_again(
    bench: Workbench, refusal: Answer
) -> None:
    seen: list[str] = []
    marked = asyncio.Event()

    async def mark() -> None:
        await until(lambda: CANARY in seen)
        await bench.execute("UPDATE memories SET is_sensitive = true")
        marked.set()

    def refused_at_first(texts: list[str]) -> Answer | None:
        seen.extend(texts)
        return refusal if CANARY in texts and not marked.is_set() else None

    await bench.insert(CANARY)
    bench.embedder.behaviour = refused_at_first
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(mark())
        tasks.create_task(bench.backfill())
    sent = seen.count(CANARY)
    await bench.backfill()
    assert seen.count(CANARY) == sent
    assert bench.embedder.received[CANARY] == 0
