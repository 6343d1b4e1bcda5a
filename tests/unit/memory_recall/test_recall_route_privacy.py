"""Neither the caller's input nor the text of memories is shown anywhere when a recall fails inside an API."""

import logging
import traceback
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import httpx
import pytest
from fastapi import FastAPI, Header, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig, get_telemetry_data
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.responses import JSONResponse

from memory_recall.contrib.fastapi import create_recall_router
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.result import Evidence, RecalledMemory, RecallResult, Timings

CANARY = "zebra-CANARY-7731"
PATH = "/api/memories/recall"

MALFORMED: list[dict[str, Any]] = [
    {"json": {"context": [CANARY]}},
    {"json": {"context": {CANARY: CANARY}}},
    {"json": {"context": "x", "limit": CANARY}},
    {"json": {"context": "x", "sort_by": CANARY}},
    {"json": {"context": "x", "category": [CANARY]}},
    {"json": {"context": "x", "is_sensitive": CANARY}},
    {"json": {"context": CANARY, "limit": 0}},
    {"json": {"context": "x", "least_relevance": CANARY}},
    {"json": {"context": CANARY, "least_relevance": 2}},
    {"json": {CANARY: CANARY}},
    {"json": {"context": CANARY, "sensitive": CANARY, CANARY: 1}},
    {"json": [CANARY]},
    {"json": CANARY},
    {"content": f'{{"context": "{CANARY}"', "headers": {"content-type": "application/json"}},
    {"content": f'{{"context": ["{CANARY}\\ud800"]}}', "headers": {"content-type": "application/json"}},
    {"content": f'{{"context": "{CANARY}", "limit": NaN}}', "headers": {"content-type": "application/json"}},
    {"content": CANARY, "headers": {"content-type": "text/plain"}},
    {"content": CANARY},
]


class BodyReader(SpanProcessor):
    """A span processor that reads what FastAPI has kept of the request."""

    def __init__(self) -> None:
        self.read: list[object] = []

    def on_end(self, _span: ReadableSpan) -> None:
        data = get_telemetry_data()
        self.read.append(data and data.body)


@dataclass
class Host:
    """An API with its own error handlers, telemetry that records everything, and our router."""

    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    app: FastAPI = field(init=False)
    handled: list[Exception] = field(default_factory=list)
    spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    logs: InMemoryLogRecordExporter = field(default_factory=InMemoryLogRecordExporter)
    metrics: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    bodies: BodyReader = field(default_factory=BodyReader)

    def __post_init__(self) -> None:
        tracer, logger = TracerProvider(), LoggerProvider()
        tracer.add_span_processor(SimpleSpanProcessor(self.spans))
        tracer.add_span_processor(self.bodies)
        logger.add_log_record_processor(SimpleLogRecordProcessor(self.logs))
        self.app = FastAPI(
            telemetry={
                "tracer_provider": tracer,
                "logger_provider": logger,
                "meter_provider": MeterProvider([self.metrics]),
                **self.telemetry,
            }
        )
        for kind in (HTTPException, RequestValidationError):
            self.app.add_exception_handler(kind, self._handle)

    def _handle(self, _request: Request, error: Exception) -> JSONResponse:
        self.handled.append(error)
        assert isinstance(error, HTTPException)
        return JSONResponse({"detail": error.detail}, error.status_code)

    def client(self, recall: Any) -> httpx.AsyncClient:
        def user(x_user: str = Header()) -> str:
            return x_user

        self.app.include_router(create_recall_router(recall, current_user=user))
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://api")

    def everything(self) -> str:
        """All that the host has been handed: errors with their causes, spans, log records, metrics."""
        errors = ["".join(traceback.format_exception(error)) + repr(vars(error)) for error in self.handled]
        spans = [span.to_json() for span in self.spans.get_finished_spans()]
        records = [record.to_json() for record in self.logs.get_finished_logs()]
        return "\n".join([*errors, *spans, *records, str(self.metrics.get_metrics_data())])


@dataclass
class BrokenPool:
    """A pool of one connection, on which every statement fails."""

    error: Exception

    async def acquire(self) -> "BrokenPool":
        return self

    async def release(self, _connection: object) -> None:
        return None

    async def expire_connections(self) -> None:
        """Nothing to replace."""

    def terminate(self) -> None:
        """Nothing to cut."""

    async def fetch(self, *_arguments: object) -> Any:
        raise self.error

    fetchrow = fetchval = fetch


class UnfitRows:
    """A recall whose rows the answer's form does not take: tags that are no text."""

    async def recall(self, *_arguments: object, **_options: object) -> RecallResult:
        tags: Any = [CANARY]
        memory = RecalledMemory(
            id=1, content=CANARY, category=CANARY, tags=tags, importance=0.5, is_sensitive=False, rank=0.5, owner="ana",
            created_at=None, updated_at=None, evidence=Evidence(1, None, None, None),
        )  # fmt: skip
        return RecallResult((memory,), "hybrid", None, Timings(0.0))


@pytest.mark.parametrize("request_", MALFORMED, ids=range(len(MALFORMED)))
async def test_a_malformed_request_is_explained_without_being_quoted(
    request_: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Type, place and reason of each problem, as the API's schema promises, and nothing of the input."""
    caplog.set_level(logging.DEBUG)
    host = Host()
    pool: Any = BrokenPool(RuntimeError("not to be reached"))
    async with host.client(HybridRecall(pool)) as http:
        answer = await http.post(PATH, **{**request_, "headers": {"x-user": "ana", **request_.get("headers", {})}})
    assert answer.status_code == 422
    assert all(set(problem) == {"type", "loc", "msg"} for problem in answer.json()["detail"])
    assert answer.json()["detail"][0]["loc"][0] == "body"
    assert CANARY not in answer.text + str(answer.headers) + caplog.text + host.everything()
    assert PATH in host.everything()


async def test_a_missing_header_of_the_callers_identity_is_named() -> None:
    """The dependency that yields the user may refuse a request as well, by its own error or by a missing parameter."""
    pool: Any = BrokenPool(RuntimeError("not to be reached"))
    async with Host().client(HybridRecall(pool)) as http:
        answer = await http.post(PATH, json={"context": CANARY})
    assert answer.json()["detail"] == [{"type": "missing", "loc": ["header", "x-user"], "msg": "Field required"}]


class Untouched:
    """A recall that must not be reached."""

    async def recall(self, *_arguments: object) -> RecallResult:
        raise AssertionError("memories were searched")


@pytest.mark.promise("unknown-caller-refused")
@pytest.mark.finding("H8")
@pytest.mark.parametrize("identity", [None, "", " ", 5.0, True, ["ana"], {"id": "ana"}, b"ana"], ids=repr)
@pytest.mark.parametrize("scope", ["owner", "everyone"])
async def test_nobody_s_memories_are_searched_for_a_caller_that_is_not_known(identity: object, scope: Any) -> None:
    """As where authentication is optional and yields None for an anonymous caller: 401."""
    recall: Any = Untouched()
    app = FastAPI()
    app.include_router(create_recall_router(recall, current_user=lambda: identity, scope=scope))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as http:
        answer = await http.post(PATH, json={"context": CANARY})
    assert (answer.status_code, answer.json()) == (401, {"detail": "Unauthenticated"})
    assert "www-authenticate" in answer.headers


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (asyncpg.UndefinedTableError(CANARY), 500, "DatabaseRejected"),
        (asyncpg.DataError(CANARY), 500, "DatabaseRejected"),
        (asyncpg.LockNotAvailableError(CANARY), 503, "LockNotAvailable"),
        (asyncpg.TooManyConnectionsError(CANARY), 503, "DatabaseUnreachable"),
        (asyncpg.InterfaceError(CANARY), 503, "DatabaseUnreachable"),
        (ConnectionResetError(CANARY), 503, "DatabaseUnreachable"),
        (RuntimeError(CANARY), 500, "Failed"),
        (UnicodeEncodeError("utf-8", CANARY, 0, 1, CANARY), 500, "Failed"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_a_failure_of_the_database_is_reported_without_its_message(
    error: Exception, status: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A reason for the caller; what waiting does not cure is in the log, by class and place."""
    caplog.set_level(logging.DEBUG)
    host = Host()
    pool: Any = BrokenPool(error)
    async with host.client(HybridRecall(pool)) as http:
        answer = await http.post(PATH, json={"context": CANARY}, headers={"x-user": "ana"})
    assert (answer.status_code, answer.json()) == (status, {"detail": reason})
    assert CANARY not in answer.text + str(answer.headers) + caplog.text + host.everything()
    logged = [record.getMessage() for record in caplog.records if record.name == "memory_recall.contrib.fastapi"]
    assert len(logged) == (status == 500)
    assert all(type(error).__name__ in line for line in logged)


async def test_rows_that_do_not_fit_the_answer_are_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    """An error of validation quotes the value, here a memory's."""
    caplog.set_level(logging.DEBUG)
    host = Host()
    async with host.client(UnfitRows()) as http:
        answer = await http.post(PATH, json={"context": "x"}, headers={"x-user": "ana"})
    assert (answer.status_code, answer.json()) == (500, {"detail": "Failed"})
    assert CANARY not in answer.text + caplog.text + host.everything()
    assert "ValidationError" in caplog.text


@pytest.mark.parametrize("excluded", [True, False])
async def test_a_host_can_keep_the_route_out_of_its_telemetry(excluded: bool) -> None:
    """The setting that the documentation names keeps bodies from processors that would read them."""
    host = Host({"exclude": lambda scope: scope["path"] == PATH} if excluded else {})
    pool: Any = BrokenPool(RuntimeError("any"))
    async with host.client(HybridRecall(pool)) as http:
        await http.post(PATH, json={"context": CANARY}, headers={"x-user": "ana"})
    assert (CANARY in str(host.bodies.read)) is not excluded
