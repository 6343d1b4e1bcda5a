"""The HTTP routes: each reads and checks a request, calls the service once and writes the response."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.http.guards import ApiKey, BodyReader
from memory_embedder.http.schemas import (
    EmbeddingRequest,
    EmbeddingResponse,
    ErrorEnvelope,
    ModelCard,
    ModelList,
    parse_request,
)
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.scheduling.service import Embedded, EmbeddingService, loading

_INLINE_VECTORS = 16  # larger answers are written on another thread, so that a query's answer does not wait for them

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
    """A route whose endpoint takes the request and makes the response itself.

    The framework's injection and validation, which it does not need, take 70 microseconds of every query, since the
    computation has just emptied the caches of code.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint without the framework's wrapper."""
        return self.endpoint


def build_router(service: EmbeddingService) -> APIRouter:
    """Build the routes that need the API key."""
    router = APIRouter()
    api_key = ApiKey(service.settings.api_key_file)
    direct = APIRouter(route_class=_DirectRoute)
    _add_embeddings(direct, service, api_key)
    router.include_router(direct)
    _add_models(router, service, api_key)
    return router


def _add_embeddings(router: APIRouter, service: EmbeddingService, api_key: ApiKey) -> None:
    limits = service.limits
    reader = BodyReader(body_bytes=limits.body_bytes, bodies_bytes=limits.bodies_bytes, seconds=limits.body_seconds)

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
        api_key.check(request.headers.get("authorization"))
        service.require_ready()
        async with reader.body(request) as body:
            parsed = parse_request(body)
            texts = check_request(parsed, service)
            lane = Lane.QUERY if parsed.input_type == "query" else Lane.DOCUMENT

            async def client_disconnected() -> None:
                while (await request.receive())["type"] != "http.disconnect":
                    pass

            result = await service.embed(
                lane, texts, truncate=parsed.truncate is not False, client_disconnected=client_disconnected
            )
        response = await _write(result, service.profile.name, parsed.encoding_format == "base64")
        service.metrics.request_seconds.labels(lane=lane.value).observe(time.monotonic() - started)
        return response


def _add_models(router: APIRouter, service: EmbeddingService, api_key: ApiKey) -> None:
    @router.get("/v1/models", responses={401: _ERRORS[401], 503: _ERRORS[503]}, summary="List the served model")
    async def models(request: Request) -> ModelList:
        api_key.check(request.headers.get("authorization"))
        return ModelList(data=[_card(service)])

    @router.get(
        "/v1/models/{model}",
        responses={status: _ERRORS[status] for status in (401, 404, 503)},
        summary="Describe the served model",
    )
    async def model(request: Request, model: str) -> ModelCard:
        api_key.check(request.headers.get("authorization"))
        _check_model(model, service)
        return _card(service)


def build_probes(service: EmbeddingService) -> APIRouter:
    """Build the routes for kubelets and scrapers, which send no key: health, readiness and metrics."""
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


def check_request(request: EmbeddingRequest, service: EmbeddingService) -> list[str]:
    """Check a request against the served model and return its texts.

    Raises:
        EmbedderError: another model or number of dimensions, no text, an empty or malformed text, or too many texts.
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
    if len(texts) > service.limits.texts:
        raise EmbedderError(
            ErrorKind.TOO_LARGE, f"More than {service.limits.texts} texts; split the request.", param="input"
        )
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


def _card(service: EmbeddingService) -> ModelCard:
    served = service.model
    if served is None:
        service.require_ready()
        raise loading()
    return ModelCard(
        id=served.name,
        created=served.created,
        dimensions=served.dimensions,
        max_tokens=served.max_tokens,
        pooling=served.pooling,
        digest=served.digest,
    )


async def _write(result: Embedded, model: str, as_base64: bool) -> Response:
    if len(result.vectors) <= _INLINE_VECTORS:
        body = _serialise(result, model, as_base64)
    else:
        body = await asyncio.to_thread(_serialise, result, model, as_base64)
    return Response(body, media_type="application/json")


def _serialise(result: Embedded, model: str, as_base64: bool) -> bytes:
    vectors = result.vectors.astype("<f4", copy=False)
    rows = [base64.b64encode(row.tobytes()).decode() for row in vectors] if as_base64 else list(vectors)
    payload = {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)],
        "model": model,
        "usage": {
            "prompt_tokens": result.tokens,
            "total_tokens": result.tokens,
            "truncated_inputs": result.truncated,
        },
    }
    return orjson.dumps(payload, option=orjson.OPT_SERIALIZE_NUMPY)
