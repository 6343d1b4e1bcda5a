"""Counts the rows that are embedded twice when one of four workers is killed with SIGKILL half way and started again.

The embedder is a real HTTP server that counts how often each text was sent. Rows whose texts the killed worker had sent
but whose vectors it had not stored must be sent again, so these rows are counted separately.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import numpy as np
import uvicorn

from memory_bench.backfill.measured_process import NULL_DIMENSIONS, NULL_MODEL
from memory_bench.backfill.null_embedder import TEXT, null_model
from memory_bench.postgres import MeasuredServer

WORKERS = 4
_VECTOR = b64encode(np.full(NULL_DIMENSIONS, 0.05, dtype="<f4").tobytes()).decode()
_DIGEST = "sha256:null"


class CountingEmbedder:
    """An embedding service, as an ASGI application, that counts how often each text is sent.

    The number at the end of a text identifies the text. The event `half_way` is set as soon as half of the first
    worker's texts have arrived, before the service has answered all of them, so that the first worker is still at work
    at that moment.
    """

    def __init__(self, rows: int) -> None:
        self.sent = bytearray(rows + 1)
        self.half_way = asyncio.Event()
        self._share, self._goal = 0, rows // WORKERS // 2

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401  (ASGI has no types of its own)
        """Handle one HTTP request."""
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":  # a worker was killed while it sent
                return
            body, more = body + message["body"], message.get("more_body", False)
        answer = self._respond(scope["path"], body)
        start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
        await send(start)
        await send({"type": "http.response.body", "body": answer})

    def _respond(self, path: str, body: bytes) -> bytes:
        if path == "/v1/models":
            card = {"id": NULL_MODEL, "dimensions": NULL_DIMENSIONS, "digest": _DIGEST}
            return json.dumps({"data": [card]}).encode()
        texts = json.loads(body)["input"]
        for text in texts:
            if text.startswith(TEXT):
                number = int(text.removeprefix(TEXT))
                self.sent[number] += 1
                self._share += number % WORKERS == 0
        if self._share >= self._goal:
            self.half_way.set()
        data = [{"index": n, "embedding": _VECTOR} for n in range(len(texts))]
        return json.dumps({"data": data, "digest": _DIGEST}).encode()


@asynccontextmanager
async def _served(application: CountingEmbedder) -> AsyncIterator[str]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, log_config=None, lifespan="off"))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


async def measure(server: MeasuredServer, *, rows: int) -> dict[str, Any]:
    """Run four workers, kill one, and count the texts that were sent again although their vectors were already stored.

    Raises:
        RuntimeError: a worker failed, or rows remained without a vector.
    """
    await server.template("double", null_model(), [f"{TEXT}{number}" for number in range(1, rows + 1)])
    dsn = await server.copy("double", "double_run")
    embedder = CountingEmbedder(rows)
    async with _served(embedder) as url:
        workers = [await _worker(number, dsn, url) for number in range(WORKERS)]
        await embedder.half_way.wait()
        workers[0].send_signal(signal.SIGKILL)
        await workers[0].wait()
        under_way = await _rows_lost_by_first_worker(dsn, embedder)
        workers[0] = await _worker(0, dsn, url)
        failed = [code for code in [await worker.wait() for worker in workers] if code != 0]
    connection = await asyncpg.connect(dsn)
    embedded = await connection.fetchval("SELECT count(embedding) FROM memories")
    await connection.close()
    if failed or embedded != rows:
        raise RuntimeError(f"{embedded} of {rows} rows were embedded; exit statuses {failed}")
    again = {row: count - 1 for row, count in enumerate(embedder.sent) if count > 1}
    return {
        "rows": rows,
        "workers": WORKERS,
        "killed": 1,
        "under_way_when_killed": len(under_way),
        "sent_again_because_unfinished": sum(1 for row in again if row in under_way),
        "double_embedded": sum(count for row, count in again.items() if row not in under_way)
        + sum(count - 1 for row, count in again.items() if row in under_way),
    }


async def _worker(number: int, dsn: str, url: str) -> asyncio.subprocess.Process:
    environment = {
        "MEMORY_DATABASE_URL": dsn,
        "MEMORY_EMBEDDER_URL": url,
        "MEMORY_MODEL": NULL_MODEL,
        "MEMORY_BACKFILL_PARTITIONS": str(WORKERS),
        "JOB_COMPLETION_INDEX": str(number),
        "MEMORY_LOG_FORMAT": "json",
    }
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "memory_recall", "backfill", "--json",
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip


async def _rows_lost_by_first_worker(dsn: str, embedder: CountingEmbedder) -> set[int]:
    """Return the ids of the rows that the first worker sent but did not store, once its database session has ended."""
    connection = await asyncpg.connect(dsn)
    try:
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1"
        while await connection.fetchval(sessions, "memory-writer") >= WORKERS:  # noqa: ASYNC110  (Postgres ends it)
            await asyncio.sleep(0.01)
        pending = await connection.fetch("SELECT id FROM memories WHERE embedding IS NULL AND id % $1 = 0", WORKERS)
    finally:
        await connection.close()
    return {row["id"] for row in pending if embedder.sent[row["id"]]}
