"""Traces are off unless configured, show where the time was spent, and never hold a caller's text."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memory_embedder.errors import EmbedderError
from memory_embedder.scheduling.service import EmbeddingService
from memory_embedder.telemetry.tracing import OpenTelemetryTracing, Tracing, make_tracing
from tests.unit.memory_embedder.conftest import Connect

CANARY = "heron-CANARY-5150"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
async def traced(service: EmbeddingService, spans: InMemorySpanExporter) -> EmbeddingService:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    service.tracing = OpenTelemetryTracing(provider)
    return service


async def test_a_request_is_one_trace_below_the_callers_with_its_steps_and_sizes(
    traced: EmbeddingService, spans: InMemorySpanExporter, connect: Connect
) -> None:
    async with connect(traced) as client:
        await client.post(
            "/v1/embeddings",
            json={"input": ["one two", "three"], "input_type": "query"},
            headers={"traceparent": PARENT, "x-request-id": "abc"},
        )
    found = {span.name: span for span in spans.get_finished_spans()}
    assert found.keys() == {"request", "tokenise", "wait and compute"}
    request = found["request"]
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == "b7ad6b7169203331"
    assert all(span.context.trace_id == request.context.trace_id for span in found.values() if span.context)
    assert request.attributes == {
        "http.route": "/v1/embeddings",
        "http.response.status_code": 200,
        "request_id": "abc",
        "lane": "query",
        "texts": 2,
        "tokens": 7,
        "truncated": 0,
        "cached": 0,
    }


REQUESTS: list[dict[str, Any]] = [
    {"json": {"input": CANARY}},
    {"json": {"input": CANARY, "input_type": "query"}},
    {"json": {"input": {CANARY: CANARY}}},
    {"json": {"input": "x", "model": CANARY}},
    {"json": {"input": CANARY + " word" * 400, "truncate": False}},
    {"json": {"input": CANARY}, "headers": {"tracestate": f"v={CANARY}", "traceparent": PARENT}},
    {"json": {"input": CANARY}, "headers": {"baggage": f"k={CANARY}", "traceparent": CANARY}},
    {"json": {"input": CANARY}, "headers": {"x-request-id": f"{CANARY} with spaces"}},
    {"json": {"input": CANARY}, "params": {"q": CANARY}},
]


async def test_no_request_text_reaches_a_span_not_even_through_an_exception(
    traced: EmbeddingService, spans: InMemorySpanExporter, engine: Any, connect: Connect
) -> None:
    async with connect(traced) as client:
        for request in REQUESTS:
            await client.post("/v1/embeddings", **request)
        await client.get(f"/v1/{CANARY}")
        engine.failures, engine.crash = 1, ValueError
        await client.post("/v1/embeddings", json={"input": CANARY})

        def explode(text: str) -> Any:
            raise RuntimeError(f"cannot tokenise {text}")

        engine.encode = explode
        assert (await client.post("/v1/embeddings", json={"input": CANARY})).status_code == 500
    written = "".join(span.to_json() for span in spans.get_finished_spans())
    assert written.count('"request"') >= len(REQUESTS) + 3
    assert CANARY not in written


async def test_the_frameworks_own_telemetry_is_off_whatever_is_configured_in_the_process(
    service: EmbeddingService, spans: InMemorySpanExporter, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = InMemoryLogRecordExporter()
    tracer_provider, logger_provider = TracerProvider(shutdown_on_exit=False), LoggerProvider(shutdown_on_exit=False)
    tracer_provider.add_span_processor(SimpleSpanProcessor(spans))
    logger_provider.add_log_record_processor(SimpleLogRecordProcessor(logs))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: tracer_provider)
    monkeypatch.setattr("opentelemetry._logs.get_logger_provider", lambda: logger_provider)
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    async with connect(service) as client:
        for request in REQUESTS:
            await client.post("/v1/embeddings", **request)
    assert spans.get_finished_spans() == ()
    assert logs.get_finished_logs() == ()


def test_without_an_endpoint_neither_sdk_nor_exporter_is_imported() -> None:
    assert type(make_tracing(None)) is Tracing
    code = (
        "import sys, json, memory_embedder.server as s; s.make_tracing(None);"
        "print(json.dumps([m for m in sys.modules if m.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))]))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(printed) == []


def test_an_endpoint_without_the_packages_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(EmbedderError, match=r"memory-embedder\[tracing\]"):
        make_tracing("http://collector.example:4318/v1/traces")
