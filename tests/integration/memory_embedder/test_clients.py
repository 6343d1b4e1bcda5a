"""Clients that exist work unchanged against the real server with real weights."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import numpy as np
import pytest

from tests.integration.memory_embedder.served import START_SECONDS

TEXT = "The NAS is backed up to the second disk every night at three."


def test_the_openai_client_gets_the_reference_vector_in_either_encoding(
    server: Any, reference: Any, openai: Any
) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    for encoding in ("float", "base64", None):
        extra: dict[str, Any] = {} if encoding is None else {"encoding_format": encoding}
        answer = client.embeddings.create(model="all-MiniLM-L6-v2", input=[TEXT, "other"], **extra)
        vector = answer.data[0].embedding
        packed = np.frombuffer(__import__("base64").b64decode(vector), "<f4") if isinstance(vector, str) else vector
        assert float(np.array(packed) @ reference.embed(TEXT)) >= 0.9999
        assert answer.usage.total_tokens == len(reference.tokenize(TEXT)) + 3
    assert client.models.list().data[0].id == "all-MiniLM-L6-v2"
    assert client.models.retrieve("all-MiniLM-L6-v2").owned_by == "memory-index"


async def test_the_async_openai_client_embeds_queries_and_documents(server: Any, openai: Any) -> None:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        answers = await asyncio.gather(
            *(
                client.embeddings.create(
                    model="all-MiniLM-L6-v2", input=f"{kind} {i}", dimensions=384, extra_body={"input_type": kind}
                )
                for i in range(10)
                for kind in ("query", "document")
            )
        )
    assert all(len(answer.data[0].embedding) == 384 for answer in answers)


def test_the_openai_client_raises_its_own_errors_for_ours(server: Any, openai: Any) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.NotFoundError) as unknown:
        client.embeddings.create(model="text-embedding-3-small", input="x")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="all-MiniLM-L6-v2", input="")
    with pytest.raises(openai.UnprocessableEntityError):
        client.embeddings.create(model="all-MiniLM-L6-v2", input=[1, 2, 3])


@pytest.mark.promise("no-core-dump")
def test_the_running_server_leaves_no_core_dump(server: Any) -> None:
    limits = open(f"/proc/{server.process.pid}/limits").read()  # noqa: PTH123, SIM115 -- a file of the kernel
    core = next(line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]


async def test_after_a_caller_disconnects_the_server_answers_others(server: Any) -> None:
    """The caller leaves once some of its texts are computed, and what is left of them is dropped."""
    async with httpx.AsyncClient(base_url=server.url, timeout=START_SECONDS) as client:
        before, dropped = [await counted(server, name) for name in ("documents_total", "dropped_tokens_total")]
        asking = asyncio.create_task(client.post("/v1/embeddings", json={"input": [TEXT * 20] * 200}))
        await grown(server, "documents_total", before)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        answer = await client.post("/v1/embeddings", json={"input": TEXT})
    assert answer.status_code == 200
    await grown(server, "dropped_tokens_total", dropped)


async def counted(server: Any, name: str) -> float:
    """The present value of a counter of the lane of documents."""
    async with httpx.AsyncClient() as client:
        metrics = (await client.get(f"{server.probe_url}/metrics", timeout=60)).text
    lines = [line for line in metrics.splitlines() if line.startswith(f'memory_embedder_{name}{{lane="document"')]
    return float(lines[0].split()[-1]) if lines else 0.0


async def grown(server: Any, name: str, before: float) -> None:
    """Wait until a counter of the lane of documents exceeds a value, at most as long as a start may take."""
    async with asyncio.timeout(START_SECONDS):
        while await counted(server, name) <= before:  # noqa: ASYNC110  (another process is observed)
            await asyncio.sleep(0.01)
