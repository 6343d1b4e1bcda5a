"""Optional OpenTelemetry traces: where a request's time went, never what it said.

Spans carry numbers, the route from our own table and the request id; no exception is recorded, since its message may
quote a text. From the caller only the trace id and span id are taken over: `tracestate` and baggage are free text.
Without `--otlp-endpoint` nothing is imported and nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from memory_embedder.errors import EmbedderError, ErrorKind

Attributes = Mapping[str, str | int | float | bool]
Headers = Iterable[tuple[bytes, bytes]]

_FLUSH_MILLISECONDS = 3000


class Tracing(Protocol):
    """What the service needs of a tracer."""

    def request(self, headers: Headers) -> AbstractContextManager[None]:
        """The span of a whole request, below the caller's if it names one."""
        ...

    def step(self, name: str) -> AbstractContextManager[None]:
        """The span of a part of it."""
        ...

    def describe(self, attributes: Attributes) -> None:
        """Adds numbers to the span that is open."""
        ...

    def close(self) -> None:
        """Sends what is left, for a few seconds at most."""
        ...


class NoTracing:
    """Tracing is off."""

    def request(self, headers: Headers) -> AbstractContextManager[None]:  # noqa: ARG002 -- the protocol's
        """Nothing."""
        return nullcontext()

    def step(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002 -- the protocol's
        """Nothing."""
        return nullcontext()

    def describe(self, attributes: Attributes) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class OpenTelemetryTracing:
    """Spans through OpenTelemetry's SDK."""

    def __init__(self, provider: Any) -> None:  # noqa: ANN401 -- a type of an optional package
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("memory_embedder")
        self._current = trace.get_current_span
        self._server = trace.SpanKind.SERVER
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def request(self, headers: Headers) -> Iterator[None]:
        """The span of a whole request, below the caller's if it names one."""
        parent = next((value for name, value in headers if name == b"traceparent"), b"")
        context = self._propagator.extract({"traceparent": parent.decode("latin-1")})
        with self._tracer.start_as_current_span(
            "request", context=context, kind=self._server, record_exception=False, set_status_on_exception=False
        ):
            yield

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """The span of a part of it."""
        with self._tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False):
            yield

    def describe(self, attributes: Attributes) -> None:
        """Adds numbers to the span that is open."""
        self._current().set_attributes(dict(attributes))

    def close(self) -> None:
        """Sends what is left, for a few seconds at most."""
        self._provider.force_flush(_FLUSH_MILLISECONDS)
        self._provider.shutdown()


def make_tracing(endpoint: str | None) -> Tracing:
    """Traces to an OTLP collector over HTTP, or none.

    Raises:
        EmbedderError: an endpoint is set but the packages are not installed.
    """
    if endpoint is None:
        return NoTracing()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise EmbedderError(
            ErrorKind.CONFIGURATION,
            "--otlp-endpoint needs OpenTelemetry's packages; install memory-embedder[tracing] or leave the option out.",
        ) from error
    # Not Resource.create(): that reads the environment and the command line, which are no business of a collector.
    provider = TracerProvider(resource=Resource({"service.name": "memory-embedder"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return OpenTelemetryTracing(provider)
