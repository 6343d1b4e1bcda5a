"""Optional OpenTelemetry traces, which show where the time of a request goes and never hold its text.

Spans carry numbers, the route from the service's own table and the request id. No exception is recorded, since its
message may quote a text. Of the trace context that a caller sends, only the trace id and the span id are used, since
`tracestate` and baggage are free text. Without `--otlp-endpoint` no package of OpenTelemetry is imported.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from memory_embedder.errors import configuration_error

Attributes = Mapping[str, str | int | float | bool]
Headers = Iterable[tuple[bytes, bytes]]

_FLUSH_MILLISECONDS = 3000


class Tracing:
    """The interface of a tracer; this one records nothing."""

    def request(self, headers: Headers) -> AbstractContextManager[None]:  # noqa: ARG002 -- of the interface
        """Open the span of a whole request, as a child of the caller's span if the headers name one."""
        return nullcontext()

    def step(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002 -- of the interface
        """Open the span of one step of the request."""
        return nullcontext()

    def describe(self, attributes: Attributes) -> None:
        """Add attributes to the current span."""

    def close(self) -> None:
        """Send the remaining spans; this takes a few seconds at most."""


class OpenTelemetryTracing(Tracing):
    """The tracer that sends spans through OpenTelemetry's SDK."""

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
        """Open the span of a whole request, as a child of the caller's span if the headers name one."""
        parent = next((value for name, value in headers if name == b"traceparent"), b"")
        context = self._propagator.extract({"traceparent": parent.decode("latin-1")})
        with self._tracer.start_as_current_span(
            "request", context=context, kind=self._server, record_exception=False, set_status_on_exception=False
        ):
            yield

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Open the span of one step of the request."""
        with self._tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False):
            yield

    def describe(self, attributes: Attributes) -> None:
        """Add attributes to the current span."""
        self._current().set_attributes(dict(attributes))

    def close(self) -> None:
        """Send the remaining spans; this takes a few seconds at most."""
        self._provider.force_flush(_FLUSH_MILLISECONDS)
        self._provider.shutdown()


def make_tracing(endpoint: str | None) -> Tracing:
    """Return a tracer that sends spans to the OTLP collector at `endpoint` over HTTP.

    With `endpoint` None, return a tracer that records nothing.

    Raises:
        EmbedderError: `endpoint` is given but OpenTelemetry's packages are not installed.
    """
    if endpoint is None:
        return Tracing()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise configuration_error(
            "--otlp-endpoint needs OpenTelemetry's packages; install memory-embedder[tracing] or leave the option out.",
        ) from error
    # Not Resource.create(): that adds the environment and the command line to every span.
    provider = TracerProvider(resource=Resource({"service.name": "memory-embedder"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return OpenTelemetryTracing(provider)
