"""The HTTP routes: each checks a request, calls the service and writes the response.

Embeddings and probes belong to two applications, each on a port of its own. Therefore callers cannot read the metrics,
and a caller that takes all connections of its port does not keep the kubelet from reaching the probes.
"""

import time
from concurrent.futures import Executor
from contextlib import ExitStack

from fastapi import APIRouter, Request, Response

from memory_embedder.errors import EmbedderError, ErrorKind, loading
from memory_embedder.http.answers import EmbeddingAnswer
from memory_embedder.http.bodies import surplus_bytes
from memory_embedder.http.certificate import ServingCertificate
from memory_embedder.http.guards import ApiKeys
from memory_embedder.http.intake import (
    ERRORS,
    Intake,
    check_model,
    check_text,
    fault_of,
    request_body,
    while_connected,
)
from memory_embedder.http.reranking import add_rerank
from memory_embedder.http.schemas import (
    EmbeddingRequest,
    EmbeddingResponse,
    ModelCard,
    ModelList,
    parse_request,
    truncates,
)
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.scheduling.service import EmbeddingService, ServedModel

_VALUE_BYTES = 4  # of a vector in memory

Faults = dict[int, ErrorKind]


def build_router(service: EmbeddingService, parser: Executor) -> APIRouter:
    """Build the routes that require the API key; large bodies are parsed on `parser`, one at a time."""
    api_key = ApiKeys(service.settings.api_key_file)
    router = APIRouter()
    intake = Intake(service, api_key, parser)
    _add_embeddings(router, service, intake)
    add_rerank(router, service, intake)
    _add_models(router, service, api_key)

    @router.get("/health", responses={503: ERRORS[503]}, summary="Whether requests are served, for clients that ask")
    async def health() -> dict[str, str]:
        service.require_ready()
        return {"status": "ok"}

    return router


def _add_embeddings(router: APIRouter, service: EmbeddingService, intake: Intake) -> None:
    vector_bytes = service.profile.dimensions * _VALUE_BYTES

    @router.post("/embeddings", include_in_schema=False)
    @router.post(
        "/v1/embeddings",
        response_model=EmbeddingResponse,
        responses=ERRORS,
        openapi_extra=request_body(EmbeddingRequest),
        summary="Embed texts",
        operation_id="createEmbeddings",
    )
    async def embeddings(request: Request) -> Response:
        started = time.monotonic()
        caller = intake.admit(request)
        with ExitStack() as held:
            share = held.enter_context(intake.budget.share(caller))
            parsed, texts, faults = await intake.read(request, share, lambda body: parse_and_check(body, service))
            share.add(surplus_bytes(parsed.texts) + len(texts) * vector_bytes)
            lane = Lane.QUERY if parsed.is_query else Lane.DOCUMENT
            truncate = truncates(parsed.truncate)
            skip = parsed.on_error == "skip"
            async with while_connected(request):
                result = await service.embed(lane, texts, truncate=truncate, skip=skip, caller=caller)
            result = result.among(faults)
            as_base64 = parsed.encoding_format == "base64"
            served = _served(service)
            answer = EmbeddingAnswer(result, served.name, served.facts.digest, as_base64=as_base64)
            answer.held = held.pop_all()
        service.metrics.request_seconds.labels(lane=lane.value).observe(time.monotonic() - started)
        return answer


def _add_models(router: APIRouter, service: EmbeddingService, api_key: ApiKeys) -> None:
    @router.get("/v1/models", responses={401: ERRORS[401], 503: ERRORS[503]}, summary="List the served models")
    async def models(request: Request) -> ModelList:
        api_key.check(request.headers.get("authorization"))
        reranker = [_card(service.reranker)] if service.reranker else []
        card = _card(_served(service))
        aliases = [card.model_copy(update={"id": name}) for name in service.settings.alias or []]
        return ModelList(data=[card, *aliases, *reranker])

    @router.get(
        "/v1/models/{model:path}",
        responses={status: ERRORS[status] for status in (401, 404, 422, 503)},
        summary="Describe a served model",
    )
    async def model(request: Request, model: str) -> ModelCard:
        api_key.check(request.headers.get("authorization"))
        served, reranker = _served(service), service.reranker
        if reranker is not None and model == reranker.name:
            return _card(reranker)
        check_model(model, served.name, service.settings.alias or [])
        return _card(served).model_copy(update={"id": model})


def build_probes(service: EmbeddingService, certificate: ServingCertificate | None = None) -> APIRouter:
    """Build the routes for the kubelet and Prometheus, which send no API key: health, readiness and metrics.

    With a `certificate`, requests are served only once it is usable.
    """
    router = APIRouter()

    def require_ready() -> None:
        service.require_ready()
        if certificate is not None:
            certificate.require_usable()

    def ready() -> float:
        try:
            require_ready()
        except EmbedderError:
            return 0.0
        return 1.0

    service.metrics.ready.set_function(ready)

    @router.get("/healthz", responses={503: ERRORS[503]}, summary="Whether the process works at all")
    async def healthz() -> dict[str, str]:
        service.require_alive()
        return {"status": "ok"}

    @router.get("/readyz", responses={503: ERRORS[503]}, summary="Whether requests are served")
    async def readyz() -> dict[str, str]:
        require_ready()
        return {"status": "ready"}

    @router.get("/metrics", response_class=Response, summary="Prometheus metrics")
    async def metrics() -> Response:
        return Response(service.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def parse_and_check(body: bytes, service: EmbeddingService) -> tuple[EmbeddingRequest, list[str], Faults]:
    """Parse a body and check the request against the served model.

    Return the request, the texts to embed, and by their places the texts that are skipped, each with its fault.

    Raises:
        EmbedderError: the body is malformed, or the served model cannot embed its texts.
    """
    request = parse_request(body, EmbeddingRequest)
    return request, *check_request(request, service)


def check_request(request: EmbeddingRequest, service: EmbeddingService) -> tuple[list[str], Faults]:
    """Check a request against the served model.

    Return the texts to embed, and by their places the texts that are skipped, each with its fault. None is skipped
    unless the request says `on_error: skip`.

    Raises:
        EmbedderError: the request names another model or another number of dimensions, has no texts, or has a text that
            is empty or malformed.
    """
    check_model(request.model, service.profile.name, service.settings.alias or [])
    expected = service.profile.dimensions
    if request.dimensions is not None and request.dimensions != expected:
        raise EmbedderError(
            ErrorKind.DIMENSIONS,
            f"This model yields {expected} dimensions; send that number or none.",
            param="dimensions",
        )
    texts = request.texts
    if not texts:
        raise EmbedderError(ErrorKind.EMPTY_INPUT, "'input' is an empty list; send at least one text.", param="input")
    if request.on_error == "skip":
        faults = {index: kind for index, text in enumerate(texts) if (kind := fault_of(text)) is not None}
        return [text for index, text in enumerate(texts) if index not in faults], faults
    for index, text in enumerate(texts):
        check_text(f"Input {index}", text, "input")
    return texts, {}


def _served(service: EmbeddingService) -> ServedModel:
    served = service.model
    if served is None:
        service.require_serving()
        raise loading()
    return served


def _card(served: ServedModel) -> ModelCard:
    facts = served.facts
    return ModelCard(
        id=served.name,
        created=served.created,
        dimensions=facts.dimensions,
        max_tokens=facts.max_tokens,
        pooling=facts.pooling,
        digest=facts.digest,
    )
