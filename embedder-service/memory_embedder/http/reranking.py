"""The route of the reranker. It serves the requests of two widespread APIs, Cohere's and TEI's, on one path.

Both send a query and a list of texts, and get the positions of the texts in the order of their scores. They differ in
the name of the list (`documents` or `texts`), so that name decides the shape of the answer: Cohere's is an object,
TEI's a list. A list has no place for the digest of the reranker's file, which is sent in a header with it.
"""

import time

import numpy as np
import orjson
from fastapi import APIRouter, Request, Response

from memory_embedder.engine.protocol import Vectors
from memory_embedder.errors import EmbedderError, ErrorKind, no_reranker
from memory_embedder.http.intake import ERRORS, Intake, check_model, check_text, disconnection, request_body
from memory_embedder.http.schemas import RerankedText, RerankRequest, RerankResponse, parse_request
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.scheduling.service import EmbeddingService, ServedModel

DIGEST_HEADER = "x-model-digest"


def add_rerank(router: APIRouter, service: EmbeddingService, intake: Intake) -> None:
    """Add the route to a router."""

    @router.post(
        "/v1/rerank",
        response_model=RerankResponse | list[RerankedText],
        responses=ERRORS,
        openapi_extra=request_body(RerankRequest),
        summary="Order texts by a query",
        operation_id="rerank",
    )
    async def rerank(request: Request) -> Response:
        started = time.monotonic()
        intake.admit(request)
        served = service.reranker
        if served is None:
            raise no_reranker()
        with intake.budget.share() as share:
            parsed, texts = await intake.read(request, share, lambda body: parse_and_check(body, served.name))
            result = await service.rerank(
                parsed.query,
                texts,
                truncate=parsed.truncate is not False,
                client_disconnected=disconnection(request),
                field="texts" if parsed.documents is None else "documents",
            )
        scores = result.vectors[:, 0]
        order = best_first(scores, parsed.top_n)
        values = scores if parsed.raw_scores else sigmoid(scores)
        usage = {
            "prompt_tokens": result.tokens,
            "total_tokens": result.tokens,
            "truncated_inputs": len(result.truncated),
        }
        answer = write_answer(parsed, [(index, float(values[index])) for index in order], served, usage)
        service.metrics.request_seconds.labels(lane=Lane.RERANK.value).observe(time.monotonic() - started)
        return answer


def parse_and_check(body: bytes, served: str) -> tuple[RerankRequest, list[str]]:
    """Parse a body, check it against the served reranker, and return the request and its texts.

    Raises:
        EmbedderError: the body is malformed, names another model, has both lists or none, has no texts, or the query
            or a text is empty or malformed.
    """
    request = parse_request(body, RerankRequest)
    check_model(request.model, served)
    if (request.documents is None) == (request.texts is None):
        raise EmbedderError(
            ErrorKind.MALFORMED, "Give the texts either as 'documents' or as 'texts'.", param="documents"
        )
    name, texts = ("texts", request.texts) if request.documents is None else ("documents", request.documents)
    if not texts:
        raise EmbedderError(ErrorKind.EMPTY_INPUT, f"'{name}' is an empty list; send at least one text.", param=name)
    check_text("The query", request.query, "query")
    for index, text in enumerate(texts):
        check_text(f"Text {index}", text, name)
    return request, texts


def best_first(scores: Vectors, top_n: int | None) -> list[int]:
    """Return the positions of the `top_n` highest scores, or of all with None; of equal scores, the first comes first.

    `scores` has the shape (texts,).
    """
    return [int(index) for index in np.argsort(-scores, kind="stable")[:top_n]]


def sigmoid(scores: Vectors) -> Vectors:
    """Map scores of any size to numbers between 0 and 1, as 1 / (1 + exp(-score)), without an overflow."""
    mapped: Vectors = np.float32(0.5) * (1 + np.tanh(np.float32(0.5) * scores))
    return mapped


def write_answer(
    request: RerankRequest, scored: list[tuple[int, float]], served: ServedModel, usage: dict[str, int]
) -> Response:
    """Write the response in the shape of the API that the request came in; `scored` holds positions and scores."""
    body: object
    if request.documents is None:
        body = [{"index": index, "score": score} for index, score in scored]
    else:
        results = [{"index": index, "relevance_score": score} for index, score in scored]
        body = {"results": results, "model": served.name, "digest": served.facts.digest, "usage": usage}
    return Response(orjson.dumps(body), media_type="application/json", headers={DIGEST_HEADER: served.facts.digest})
