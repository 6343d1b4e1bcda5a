"""Builds the two ASGI applications, for callers and for probes: routes, error responses and the request guard."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException

from memory_embedder import __version__
from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.http.certificate import ServingCertificate
from memory_embedder.http.guards import RequestGuard
from memory_embedder.http.routes import build_probes, build_router
from memory_embedder.scheduling.service import EmbeddingService

_DESCRIPTION = """Private embeddings on llama.cpp, compatible with OpenAI's `/v1/embeddings`, and reranking.

Queries never wait behind bulk documents: say `input_type`. No request text is ever logged, stored or sent anywhere."""


# The framework would hand bodies, validation errors and exception messages to whatever collector is configured.
_NO_TELEMETRY = TelemetryConfig(tracing=False, metrics=False, logs=False, operation_spans=False, auto_configure=False)


def build_app(service: EmbeddingService) -> FastAPI:
    """Build the application for callers; loading the service is left to the caller of this function."""
    # One thread, since parsing keeps others from running: two large bodies at once would delay a query twice as long.
    parser = ThreadPoolExecutor(max_workers=1, thread_name_prefix="parser")

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        parser.shutdown()

    app = FastAPI(
        title="memory-embedder",
        version=__version__,
        description=_DESCRIPTION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        docs_url=None,  # it and the next take their scripts from the internet
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )
    app.include_router(build_router(service, parser), tags=["embeddings"])
    _guard(app, service, counts=True)
    return app


def build_probe_app(service: EmbeddingService, certificate: ServingCertificate | None = None) -> FastAPI:
    """Build the application for the kubelet and Prometheus: health, readiness and metrics.

    `certificate` is that of the port for callers, if it speaks TLS.
    """
    app = FastAPI(openapi_url=None, redirect_slashes=False, telemetry=_NO_TELEMETRY)
    app.include_router(build_probes(service, certificate))
    _guard(app, service, counts=False)  # a probe asks for what the service is, which refuses nobody's request
    return app


def _guard(app: FastAPI, service: EmbeddingService, *, counts: bool) -> None:
    async def handle(_request: Request, error: Exception) -> JSONResponse:
        refusal = _as_refusal(error)
        if counts:
            service.metrics.rejected.labels(code=refusal.kind.code).inc()
        answer = _response(refusal)
        if isinstance(error, HTTPException) and error.headers and "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer

    for kind in (EmbedderError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, handle)
    app.add_middleware(RequestGuard, service=service)


def _response(error: EmbedderError) -> JSONResponse:
    headers = {} if error.retry_after_seconds is None else {"Retry-After": str(error.retry_after_seconds)}
    if error.kind is ErrorKind.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if error.kind is ErrorKind.TIMEOUT:
        headers["Connection"] = "close"  # the rest of the body would be taken for the next request
    return JSONResponse(error.envelope(), status_code=error.kind.status, headers=headers)


def _as_refusal(error: Exception) -> EmbedderError:
    """Convert an error of FastAPI into an error of this service, because FastAPI's own responses quote the input."""
    if isinstance(error, EmbedderError):
        return error
    status = error.status_code if isinstance(error, HTTPException) else 422
    if status == 404:
        return EmbedderError(
            ErrorKind.UNKNOWN_PATH, "There is nothing at this path; /openapi.json lists what there is."
        )
    if status == 405:
        return EmbedderError(
            ErrorKind.METHOD, "This path does not take this method; /openapi.json lists what it takes."
        )
    return EmbedderError(ErrorKind.MALFORMED, "The request is malformed; see /openapi.json.")
