"""The HTTP client of the embedding service, used by recalls and by the backfill and sync workers.

Vectors travel as base64 of little-endian float32, since a JSON list of 1024 numbers costs more time to parse than the
query costs to embed. Everything that can go wrong on the way becomes a `MemoryIndexError`, once, here. No error ever
carries a text that was sent: the service's own message is dropped, its machine-readable code is kept.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np
import numpy.typing as npt

from memory_recall.errors import (
    DimensionMismatch,
    EmbedderBroken,
    EmbedderBusy,
    EmbedderRejected,
    EmbedderUnauthorized,
    EmbedderUnavailable,
    MemoryIndexError,
    ModelMismatch,
)

Vectors = npt.NDArray[np.float32]

DEFAULT_TIMEOUT = httpx.Timeout(120.0, connect=5.0)  # a cold pod may take a while over a full batch of documents
DEFAULT_RETRY_AFTER = 1.0
_RETRYABLE = frozenset({408, 425, 500, 502, 503, 504})
_CODE_LENGTH = 60


@dataclass(frozen=True, slots=True)
class EmbeddedBatch:
    """The vectors of one request, in the order of its inputs, and what the service counted."""

    vectors: Vectors
    tokens: int
    truncated: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the service says of the model that it serves."""

    name: str
    dimensions: int
    max_tokens: int | None
    pooling: str | None
    digest: str | None


class EmbedderClient:
    """Asynchronous client of `POST /v1/embeddings` and `GET /v1/models`; safe for concurrent use.

    `model` None uses whatever the service serves. `dimensions`, where known, is checked in every answer.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: str | None = None,
        *,
        dimensions: int | None = None,
        timeout: httpx.Timeout | float = DEFAULT_TIMEOUT,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.model = model
        self._dimensions = dimensions
        self._http = httpx.AsyncClient(
            base_url=self.base_url,
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=timeout,
            transport=transport,
            limits=httpx.Limits(max_connections=32, max_keepalive_connections=8),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def embed_documents(self, texts: Sequence[str]) -> EmbeddedBatch:
        """Embed memories; over-long ones are truncated by the service and counted."""
        return await self._embed(texts, "document")

    async def embed_queries(self, texts: Sequence[str]) -> EmbeddedBatch:
        """Embed many queries in one request, as an evaluation does."""
        return await self._embed(texts, "query")

    async def embed_query(self, text: str) -> Vectors:
        """Embed one query."""
        batch = await self._embed([text], "query")
        vector: Vectors = batch.vectors[0]
        return vector

    async def model_info(self) -> ModelInfo:
        """Ask the service which model it serves."""
        payload = await self._request("GET", "/v1/models")
        try:
            served = payload["data"][0]
            return ModelInfo(
                name=str(served["id"]),
                dimensions=int(served["dimensions"]),
                max_tokens=served.get("max_tokens"),
                pooling=served.get("pooling"),
                digest=served.get("digest"),
            )
        except (KeyError, IndexError, TypeError, ValueError):
            raise self._malformed("its model list has no usable entry") from None

    async def _embed(self, texts: Sequence[str], input_type: str) -> EmbeddedBatch:
        if not texts:
            return EmbeddedBatch(np.empty((0, self._dimensions or 0), dtype=np.float32), 0, 0)
        body: dict[str, Any] = {"input": list(texts), "encoding_format": "base64", "input_type": input_type}
        if self.model:
            body["model"] = self.model
        payload = await self._request("POST", "/v1/embeddings", body)
        vectors = self._decode(payload, len(texts))
        usage = payload.get("usage") or {}
        return EmbeddedBatch(vectors, int(usage.get("total_tokens", 0)), int(usage.get("truncated_inputs", 0)))

    async def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            response = await self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise EmbedderUnavailable(
                f"The embedder at {self.base_url} could not be reached ({type(error).__name__}).",
                remedy="Check that its Service has a ready pod and that a NetworkPolicy lets this pod reach it.",
                retry_after=DEFAULT_RETRY_AFTER,
            ) from None
        except httpx.InvalidURL:
            raise EmbedderUnavailable(
                "The embedder's URL is not a URL.", remedy="Give it as http://NAME.NAMESPACE.svc:8080."
            ) from None
        if response.status_code != 200:
            raise self._refusal(response)
        try:
            payload = response.json()
        except ValueError:
            raise self._malformed("it is not JSON") from None
        if not isinstance(payload, dict):
            raise self._malformed("it is not an object")
        return payload

    def _refusal(self, response: httpx.Response) -> MemoryIndexError:
        status = response.status_code
        where = f"The embedder at {self.base_url} answered {status}{_code(response)}."
        if status == 429:
            remedy = "Its queue is full; repeat the request after the time that it named."
            return EmbedderBusy(where, remedy=remedy, retry_after=_retry_after(response))
        if status in _RETRYABLE:
            remedy = "It is loading or draining; repeat the request later, and read its pod's log if this lasts."
            return EmbedderUnavailable(where, remedy=remedy, retry_after=_retry_after(response))
        if status in {401, 403}:
            return EmbedderUnauthorized(where, remedy="Give the API key that the embedder was started with.")
        if status == 404:
            return ModelMismatch(where, remedy=f"It does not serve the model {self.model!r}; see its /v1/models.")
        return EmbedderRejected(where, remedy="The request itself is refused; repeating it will not help.")

    def _decode(self, payload: dict[str, Any], expected: int) -> Vectors:
        try:
            entries = sorted(payload["data"], key=lambda entry: int(entry["index"]))
            vectors = np.stack([_vector(entry["embedding"]) for entry in entries])
        except (KeyError, TypeError, ValueError, binascii.Error):
            raise self._malformed("its vectors cannot be decoded") from None
        if len(vectors) != expected:
            raise self._malformed(f"it holds {len(vectors)} vectors for {expected} inputs")
        if not np.isfinite(vectors).all():
            raise self._malformed("a vector holds a number that is not finite")
        if self._dimensions is not None and vectors.shape[1] != self._dimensions:
            raise DimensionMismatch(
                f"The embedder at {self.base_url} yields {vectors.shape[1]} dimensions, not {self._dimensions}.",
                remedy="Make the configured dimensions equal those of the model that it serves.",
            )
        return vectors

    def _malformed(self, what: str) -> EmbedderBroken:
        return EmbedderBroken(
            f"The answer of the embedder at {self.base_url} is unusable: {what}.",
            remedy="Check that the URL is that of a memory-embedder of the same release.",
        )


def _vector(encoded: object) -> Vectors:
    if isinstance(encoded, str):
        return np.frombuffer(base64.b64decode(encoded, validate=True), dtype="<f4")
    return np.asarray(encoded, dtype=np.float32)


def _retry_after(response: httpx.Response) -> float:
    try:
        return max(0.0, float(response.headers.get("retry-after", DEFAULT_RETRY_AFTER)))
    except ValueError:
        return DEFAULT_RETRY_AFTER


def _code(response: httpx.Response) -> str:
    """The service's error code, never its message: another server behind the URL might echo the input in one."""
    try:
        error = response.json()["error"]
        code = error.get("code") or error.get("type")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    known = isinstance(code, str) and len(code) <= _CODE_LENGTH and code.replace("_", "").replace("-", "").isalnum()
    return f" ({code})" if known else ""
