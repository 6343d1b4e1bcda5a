"""The HTTP routes: each checks a request, calls the service and writes the response.

Embeddings and probes belong to two applications, each on a port of its own. Therefore callers cannot read the metrics,
and a caller that takes all connections of its port does not keep the kubelet from reaching the probes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import ExitStack
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.http.answers import EmbeddingAnswer
from memory_embedder.http.bodies import SMALL_BYTES, MemoryBudget, check_structure, read_body
from memory_embedder.http.guards import ApiKey
from memory_embedder.http.schemas import (
    EmbeddingRequest,
    EmbeddingResponse,
    ErrorEnvelope,
    ModelCard,
    ModelList,
    parse_request,
)
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.scheduling.service import EmbeddingService, ServedModel, loading

_VALUE_BYTES = 4  # of a vector in memory

_DESCRIPTIONS = {
    400: "There is no text to embed.",
    401: "The API key is missing or wrong.",
    404: "Another model than the served one was asked for.",
    408: "The body did not arrive in time.",
    413: "The request is larger than one request may be.",
    422: "The request is malformed, or too long with truncate=false.",
    429: "The queue is full; Retry-After tells when there will be room.",
    503: "Loading, shutting down, or the engine failed.",
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorEnvelope, "description": text} for status, text in _DESCRIPTIONS.items()
}
_REQUEST_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": EmbeddingRequest.model_json_schema()}},
    }
}


class _DirectRoute(APIRoute):
    """A route whose endpoint takes the request and makes the response, without FastAPI's injection and validation.

    Injection and validation would add 70 microseconds to each query, because the computation of embeddings empties the
    CPU's instruction caches.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint itself."""
        return self.endpoint


def build_router(service: EmbeddingService, parser: Executor) -> APIRouter:
    """Build the routes that require the API key. Large bodies are parsed on the executor `parser`, one at a time."""
    router = APIRouter()
    api_key = ApiKey(service.settings.api_key_file)
    direct = APIRouter(route_class=_DirectRoute)
    _add_embeddings(direct, service, api_key, parser)
    router.include_router(direct)
    _add_models(router, service, api_key)
    return router


def _add_embeddings(router: APIRouter, service: EmbeddingService, api_key: ApiKey, parser: Executor) -> None:
    limits = service.limits
    budget = MemoryBudget(limits.large_bytes)
    vector_bytes = service.profile.dimensions * _VALUE_BYTES

    async def parse(body: bytes) -> tuple[EmbeddingRequest, list[str]]:
        if len(body) <= SMALL_BYTES:
            return parse_and_check(body, service)
        return await asyncio.get_running_loop().run_in_executor(parser, parse_and_check, body, service)

    @router.post(
        "/v1/embeddings",
        response_model=EmbeddingResponse,
        responses=_ERRORS,
        openapi_extra=_REQUEST_BODY,
        summary="Embed texts",
        operation_id="createEmbeddings",
    )
    async def embeddings(request: Request) -> Response:
        started = time.monotonic()
        caller = api_key.check(request.headers.get("authorization"))
        service.require_serving()

        async def client_disconnected() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        with ExitStack() as held:
            share = held.enter_context(budget.share())
            parsed, texts = await parse(await read_body(request, share, limits.body_bytes, limits.body_seconds))
            share.add(len(texts) * vector_bytes)
            lane = Lane.QUERY if parsed.input_type == "query" else Lane.DOCUMENT
            truncate = parsed.truncate is not False
            result = await service.embed(
                lane, texts, truncate=truncate, client_disconnected=client_disconnected, caller=caller
            )
            as_base64 = parsed.encoding_format == "base64"
            served = _served(service)
            answer = EmbeddingAnswer(result, served.name, served.digest, as_base64=as_base64)
            answer.held = held.pop_all()
        service.metrics.request_seconds.labels(lane=lane.value).observe(time.monotonic() - started)
        return answer


def _add_models(router: APIRouter, service: EmbeddingService, api_key: ApiKey) -> None:
    @router.get("/v1/models", responses={401: _ERRORS[401], 503: _ERRORS[503]}, summary="List the served model")
    async def models(request: Request) -> ModelList:
        api_key.check(request.headers.get("authorization"))
        return ModelList(data=[_card(service)])

    @router.get(
        "/v1/models/{model}",
        responses={status: _ERRORS[status] for status in (401, 404, 422, 503)},
        summary="Describe the served model",
    )
    async def model(request: Request, model: str) -> ModelCard:
        api_key.check(request.headers.get("authorization"))
        _check_model(model, service)
        return _card(service)


def build_probes(service: EmbeddingService) -> APIRouter:
    """Build the routes for the kubelet and Prometheus, which send no API key: health, readiness and metrics."""
    router = APIRouter()

    @router.get("/healthz", responses={503: _ERRORS[503]}, summary="Whether the process works at all")
    async def healthz() -> dict[str, str]:
        service.require_alive()
        return {"status": "ok"}

    @router.get("/readyz", responses={503: _ERRORS[503]}, summary="Whether requests are served")
    async def readyz() -> dict[str, str]:
        service.require_ready()
        return {"status": "ready"}

    @router.get("/metrics", response_class=Response, summary="Prometheus metrics")
    async def metrics() -> Response:
        return Response(service.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def parse_and_check(body: bytes, service: EmbeddingService) -> tuple[EmbeddingRequest, list[str]]:
    """Parse a body, check the request against the served model, and return the request and its texts.

    Raises:
        EmbedderError: the body is malformed or has too many values, or the served model cannot embed its texts.
    """
    check_structure(body)
    request = parse_request(body)
    return request, check_request(request, service)


def check_request(request: EmbeddingRequest, service: EmbeddingService) -> list[str]:
    """Check a request against the served model and return its texts.

    Raises:
        EmbedderError: the request names another model or another number of dimensions, has no texts, or has a text that
            is empty or malformed.
    """
    if request.model is not None:
        _check_model(request.model, service)
    expected = service.profile.dimensions
    if request.dimensions is not None and request.dimensions != expected:
        raise EmbedderError(
            ErrorKind.DIMENSIONS,
            f"This model yields {expected} dimensions; send that number or none.",
            param="dimensions",
        )
    texts = [request.input] if isinstance(request.input, str) else request.input
    if not texts:
        raise EmbedderError(ErrorKind.EMPTY_INPUT, "'input' is an empty list; send at least one text.", param="input")
    for index, text in enumerate(texts):
        _check_text(index, text)
    return texts


def _check_text(index: int, text: str) -> None:
    if not text.strip():
        raise EmbedderError(ErrorKind.EMPTY_INPUT, f"Input {index} is empty; there is nothing to embed.", param="input")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise EmbedderError(
            ErrorKind.MALFORMED, f"Input {index} holds unpaired surrogates, which are no text.", param="input"
        ) from None


def _check_model(name: str, service: EmbeddingService) -> None:
    if name != service.profile.name:
        raise EmbedderError(
            ErrorKind.UNKNOWN_MODEL,
            f"That model is not served here; this service serves '{service.profile.name}'.",
            param="model",
        )


def _served(service: EmbeddingService) -> ServedModel:
    served = service.model
    if served is None:
        service.require_serving()
        raise loading()
    return served


def _card(service: EmbeddingService) -> ModelCard:
    served = _served(service)
    return ModelCard(
        id=served.name,
        created=served.created,
        dimensions=served.dimensions,
        max_tokens=served.max_tokens,
        pooling=served.pooling,
        digest=served.digest,
    )
