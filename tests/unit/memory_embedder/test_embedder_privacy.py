"""The text of a request appears nowhere but in the engine's input, shown with a canary text."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import structlog
import uvicorn

from memory_embedder.scheduling.service import EmbeddingService
from memory_embedder.telemetry.logs import configure_logging
from tests.unit.memory_embedder.conftest import Connect

CANARY = "zebra-CANARY-7731"


@pytest.fixture
def debug_log() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configure_logging("debug")
    stream = io.StringIO()
    handler = root.handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


REQUESTS: list[dict[str, Any]] = [
    {"json": {"input": CANARY}},
    {"json": {"input": CANARY, "input_type": "query"}},
    {"json": {"input": [CANARY] * 3, "encoding_format": "base64"}},
    {"json": {"input": CANARY + " word" * 400, "truncate": False}},
    {"json": {"input": {CANARY: CANARY}}},
    {"json": {"input": [CANARY, 3]}},
    {"json": {"input": "x", "model": CANARY}},
    {"json": {"input": "x", "dimensions": CANARY}},
    {"json": {"input": "x", "encoding_format": CANARY}},
    {"json": {"input": "x", "input_type": CANARY}},
    {"json": {CANARY: "x"}},
    {"json": [CANARY]},
    {"json": CANARY},
    {"content": f'{{"input": "{CANARY}"'.encode()},
    {"content": f'{{"input": "{CANARY}\\ud800"}}'.encode()},
    {"content": CANARY.encode() * 300_000},
    {"json": {"input": [CANARY] * 3000}},
    {"json": {"input": CANARY}, "headers": {"x-request-id": f"{CANARY} with spaces"}},
    {"json": {"input": CANARY}, "headers": {"authorization": f"Bearer {CANARY}"}},
    {"json": {"input": CANARY}, "params": {"q": CANARY}},
]


@pytest.mark.promise("no-text-or-secret-in-outputs")
async def test_no_request_text_reaches_answers_logs_or_metrics(
    service: EmbeddingService, connect: Connect, probe: httpx.AsyncClient, debug_log: io.StringIO
) -> None:
    async with connect(service) as client:
        for request in REQUESTS:
            answer = await client.post("/v1/embeddings", **request)
            assert CANARY not in answer.text
            assert CANARY not in str(answer.headers)
        for path in (f"/v1/{CANARY}", f"/v1/models/{CANARY}", f"/docs?{CANARY}"):
            assert CANARY not in (await client.get(path)).text
        metrics = (await probe.get("/metrics")).text
    assert CANARY not in metrics
    assert CANARY not in debug_log.getvalue()
    assert "/v1/embeddings" in debug_log.getvalue()


async def test_an_exception_that_quotes_the_text_is_logged_without_its_message(
    service: EmbeddingService, engine: Any, connect: Connect, debug_log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.failures, engine.crash = 1, ValueError
    async with connect(service) as client:
        assert (await client.post("/v1/embeddings", json={"input": CANARY})).status_code == 503

        def explode(text: str) -> Any:
            raise RuntimeError(f"cannot tokenise {text}")

        monkeypatch.setattr(engine, "encode", explode)
        broken = await client.post("/v1/embeddings", json={"input": CANARY})
    assert (broken.status_code, broken.json()["error"]["code"]) == (500, "internal")
    assert CANARY not in broken.text
    log = debug_log.getvalue()
    assert CANARY not in log
    assert "RuntimeError" in log
    assert "explode" in log


@pytest.fixture
def server_logs_by_itself() -> Iterator[None]:
    """Configure logging as the HTTP server does by itself, with handlers that print whole tracebacks."""
    uvicorn.Config(app=None, log_level="debug")  # type: ignore[arg-type] -- only its logging is wanted
    yield
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers[:], logger.propagate, logger.disabled = [], True, False
        logger.setLevel(logging.NOTSET)


async def test_a_traceback_logged_by_the_http_server_holds_no_text(
    server_logs_by_itself: None, debug_log: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        raise RuntimeError(CANARY)  # noqa: TRY301 -- the subject of the test
    except RuntimeError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
    assert "Exception in ASGI application" in debug_log.getvalue()
    assert CANARY not in debug_log.getvalue() + capsys.readouterr().err


async def test_every_answer_has_a_request_id_and_a_well_formed_one_is_kept(
    client: httpx.AsyncClient,
) -> None:
    given = await client.post("/v1/embeddings", json={"input": "x"}, headers={"x-request-id": "abc-123"})
    made = await client.post("/v1/embeddings", json={"input": ""})
    assert given.headers["x-request-id"] == "abc-123"
    assert len(made.headers["x-request-id"]) == 16
