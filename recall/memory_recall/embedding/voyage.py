"""The HTTP client of a hosted provider with Voyage's API. Its attribute `hosted` is True: texts leave the cluster.

A request holds the texts, the model's name, whether they are queries or documents, and the vectors' dimensions; nothing
else of a memory. The provider limits the texts and tokens of a request, so a longer list becomes several requests. A
failed request is not retried here, because a recall has no time for retries and workers retry in
`indexing.hosted_embedder`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import numpy as np

from memory_recall.embedding.api_key import ApiKey, BearerKey
from memory_recall.embedding.bounded_answer import Request
from memory_recall.embedding.client import AsyncEmbedder
from memory_recall.embedding.requests import divided
from memory_recall.embedding.served_model import VOYAGE_URL, ServedModel
from memory_recall.embedding.whole_text import whole
from memory_recall.embedding.wire import EMBEDDINGS_PATH, EmbeddedBatch, Vectors, WireFormat
from memory_recall.errors import EmbedderUnauthorized, InvalidConfiguration

_TIMEOUT = httpx.Timeout(60.0, connect=5.0)
_CHARACTERS_PER_TOKEN = 3  # fewer than English prose has, so that an estimate errs on the safe side
MAX_TEXTS, MAX_TOKENS = 128, 100_000  # below the smallest limits of the provider's models (1,000 and 120,000)


def estimated_tokens(texts: Sequence[str]) -> int:
    """Estimate the number of tokens of the texts; the estimate is more often too high than too low."""
    return sum(len(text) // _CHARACTERS_PER_TOKEN + 2 for text in texts)


def joined(answers: Sequence[EmbeddedBatch]) -> EmbeddedBatch:
    """Join the answers of at least one request, in their order. The provider does not say which texts it truncated."""
    vectors = np.concatenate([answer.vectors for answer in answers])
    return EmbeddedBatch(vectors, sum(answer.tokens for answer in answers))


class VoyageClient(AsyncEmbedder):
    """Asynchronous client of Voyage AI's `POST /v1/embeddings`; safe for concurrent use.

    Raises:
        InvalidConfiguration: the API key is an empty text. A key in a file may be missing until a request is sent.
    """

    hosted = True

    def __init__(
        self,
        model: str,
        dimensions: int,
        api_key: ApiKey,
        *,
        base_url: str = VOYAGE_URL,
        timeout: httpx.Timeout | float = _TIMEOUT,
        max_texts: int = MAX_TEXTS,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        key = BearerKey(api_key)
        if isinstance(api_key, str) and not key.read():
            raise InvalidConfiguration("The hosted provider's API key is empty.", "Pass the provider's key.")
        self.model: str | None = model
        self._dimensions = dimensions
        self._max_texts, self._max_tokens = max_texts, max_tokens
        self._timeout = httpx.Timeout(timeout)
        wire = WireFormat(base_url.rstrip("/"), model, dimensions)
        http = httpx.AsyncClient(base_url=wire.base_url, auth=key)
        super().__init__(wire, http)

    async def model_info(self) -> ServedModel:
        """Return the configured model, without a digest. The provider is not asked, which saves a request."""
        return ServedModel(str(self.model), self._dimensions)

    async def embed_query(self, text: str) -> Vectors:
        """Embed one query; the caller makes sure that it is not marked sensitive."""
        vector: Vectors = (await self._embed([text], "query")).vectors[0]
        return vector

    def requests(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Divide the texts into lists, one for each request.

        A text that alone exceeds the limit of tokens gets a list of its own; the provider truncates it.
        """
        return divided(
            texts, lambda text: estimated_tokens([text]), most_items=self._max_texts, most_cost=self._max_tokens
        )

    async def _embed(self, texts: Sequence[str], input_type: str, *, skip: bool = False) -> EmbeddedBatch:  # noqa: ARG002  (the provider fails a request whole)
        if not texts:
            return self._wire.empty_batch()
        return joined([await self._request(part, input_type) for part in self.requests(texts)])

    async def _request(self, texts: Sequence[str], input_type: str) -> EmbeddedBatch:
        body: dict[str, Any] = {
            "input": list(map(whole, texts)),
            "model": self.model,
            "input_type": input_type,
            "output_dimension": self._dimensions,
            "truncation": True,
            "encoding_format": "base64",
        }
        request = Request("POST", EMBEDDINGS_PATH, self._wire.bounds(len(texts)), self._timeout, body)
        try:
            return await self._send(self._http, request, lambda wire, payload: wire.batch(payload, len(texts)))
        except EmbedderUnauthorized as error:
            remedy = "Put a valid key of the provider into the Secret, or into the file MEMORY_HOSTED_API_KEY_FILE."
            raise EmbedderUnauthorized(error.message, remedy) from None
