"""The route of the reranker. It serves the requests of two widespread APIs, Cohere's and TEI's.

Both send a query and a list of texts, and get the positions of the texts in the order of their scores. They differ in
the name of the list (`documents` or `texts`), so that name decides the shape of the answer: Cohere's is an object,
TEI's a list. A list has no place for the digest of the reranker's file, which is sent in a header with it. Clients
that are given the bare address ask at `/rerank` or `/v2/rerank`, which are the same route.
"""

import time
from contextlib import ExitStack

import numpy as np
import orjson
from fastapi import APIRouter, Request, Response

from memory_embedder.engine.protocol import Vectors
from memory_embedder.errors import EmbedderError, ErrorKind, no_reranker
from memory_embedder.http.answers import HeldAnswer
from memory_embedder.http.bodies import surplus_bytes
from memory_embedder.http.intake import ERRORS, Intake, check_model, check_text, request_body, while_connected
from memory_embedder.http.schemas import RerankedText, RerankRequest, RerankResponse, parse_request, truncates
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.scheduling.service import EmbeddingService, ServedModel

DIGEST_HEADER = "x-model-digest"


def add_rerank(router: APIRouter, service: EmbeddingService, intake: Intake) -> None:
    """Add the route to a router."""

    @router.post("/v2/rerank", include_in_schema=False)
    @router.post("/rerank", include_in_schema=False)
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
        caller = intake.admit(request)
        served = service.reranker
        if served is None:
            raise no_reranker()
        with ExitStack() as held:
            share = held.enter_context(intake.budget.share(caller))
            parsed, texts = await intake.read(request, share, lambda body: parse_and_check(body, served.name))
            share.add(surplus_bytes([parsed.query, *texts]))
            if parsed.repeats_texts:
                share.add(sum(len(text.encode()) for text in texts))
            async with while_connected(request):
                result = await service.rerank(
                    parsed.query,
                    texts,
                    truncate=truncates(parsed.truncate),
                    field="texts" if parsed.documents is None else "documents",
                    caller=caller,
                )
            scores = result.vectors[:, 0]
            order = best_first(scores, parsed.top_n)
            values = scores if parsed.raw_scores else sigmoid(scores)
            usage = {
                "prompt_tokens": result.tokens,
                "total_tokens": result.tokens,
                "truncated_inputs": len(result.truncated),
            }
            scored = [(index, float(values[index]), texts[index]) for index in order]
            answer = write_answer(parsed, scored, served, usage)
            answer.held = held.pop_all()
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
    name, given = ("texts", request.texts) if request.documents is None else ("documents", request.documents)
    texts = [one if isinstance(one, str) else one.text for one in given or []]
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
    request: RerankRequest, scored: list[tuple[int, float, str]], served: ServedModel, usage: dict[str, int]
) -> HeldAnswer:
    """Write the response in the shape of the API that the request came in.

    `scored` holds the position, the score and the text of each text that is answered.
    """
    teis = request.documents is None
    entries: list[dict[str, object]] = []
    for index, score, text in scored:
        entry: dict[str, object] = {"index": index, "score" if teis else "relevance_score": score}
        if request.repeats_texts:
            entry |= {"text": text} if teis else {"document": {"text": text}}
        entries.append(entry)
    described = {"model": served.name, "digest": served.facts.digest, "usage": usage}
    body = entries if teis else {"results": entries, **described}
    return HeldAnswer(orjson.dumps(body), {DIGEST_HEADER: served.facts.digest})
