"""Builds the requests of the embedding service's HTTP API and reads its answers, without sending anything.

Vectors travel as base64 of little-endian float32, since parsing a JSON list of 1024 numbers takes longer than embedding
a query. Only this module converts failures of the service into `MemoryIndexError`. No error carries a text that was
sent: the service's own message is dropped, its machine-readable code is kept.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from memory_recall.embedding.direction import has_direction
from memory_recall.embedding.http_client import retry_after
from memory_recall.embedding.served_model import ServedModel
from memory_recall.errors import (
    DimensionMismatch,
    EmbedderBroken,
    EmbedderBusy,
    EmbedderRejected,
    EmbedderUnauthorized,
    EmbedderUnavailable,
    InvalidConfiguration,
    MemoryIndexError,
    ModelMismatch,
    Resend,
)

Vectors = npt.NDArray[np.float32]

EMBEDDINGS_PATH = "/v1/embeddings"
MODELS_PATH = "/v1/models"
RERANK_PATH = "/v1/rerank"
_DEFAULT_RETRY_AFTER = 1.0
_RETRYABLE = frozenset({408, 425, 500, 502, 503, 504})
_CODE_LENGTH = 60
_LARGEST_HALF = float(np.finfo(np.float16).max)  # vectors are stored as halfvec


@dataclass(frozen=True, slots=True)
class EmbeddedBatch:
    """The vectors of one request, an array (texts, dimensions), and its numbers of tokens and truncated texts.

    `digest` is that of the model file that made the vectors; it is None if the service does not say.
    """

    vectors: Vectors
    tokens: int
    truncated: int
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class WireFormat:
    """Builds requests to the embedding service at `base_url` and reads its responses.

    If `dimensions` is None, vectors of any number of dimensions are accepted.
    """

    base_url: str
    model: str | None
    dimensions: int | None

    def __post_init__(self) -> None:
        """Refuse a URL with a user name or a password, because error messages and the database contain the URL.

        Raises:
            InvalidConfiguration: the URL holds a user name or a password.
        """
        if "@" in self.base_url:
            raise InvalidConfiguration(
                "The embedder's URL holds user information.", "Give the URL without it, and the key as the API key."
            )

    def body(self, texts: Sequence[str], input_type: str) -> dict[str, Any]:
        """Return the body of an embeddings request."""
        body: dict[str, Any] = {"input": list(texts), "encoding_format": "base64", "input_type": input_type}
        if self.model:
            body["model"] = self.model
        return body

    def rerank_body(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        """Return the body of a rerank request. Raw scores differ even where a sigmoid of them rounds to one number."""
        return {"query": query, "documents": list(texts), "raw_scores": True}

    def empty_batch(self) -> EmbeddedBatch:
        """Return the result for an empty list of texts, for which no request is sent."""
        return EmbeddedBatch(np.empty((0, self.dimensions or 0), dtype=np.float32), 0, 0)

    def unreachable(self, error: Exception) -> EmbedderUnavailable:
        """Return `EmbedderUnavailable` for an error of the HTTP library, whose own message may quote the request."""
        if isinstance(error, httpx.InvalidURL):
            return EmbedderUnavailable("The embedder's URL is not a URL.", "Give it as http://NAME.NAMESPACE.svc:8080.")
        return EmbedderUnavailable(
            f"The embedder at {self.base_url} could not be reached ({type(error).__name__}).",
            "Check that its Service has a ready pod and that a NetworkPolicy lets this pod reach it.",
            retry_after=_DEFAULT_RETRY_AFTER,
            resend=_resend(error),
        )

    def payload(self, response: httpx.Response) -> dict[str, Any]:
        """Return the JSON object in an answer of the service.

        Raises:
            MemoryIndexError: the service refused the request, or its answer holds no JSON object.
        """
        if response.status_code != 200:
            raise self._refusal(response)
        try:
            payload = response.json()
        except ValueError:
            raise self._malformed("it is not JSON") from None
        if not isinstance(payload, dict):
            raise self._malformed("it is not an object")
        return payload

    def batch(self, payload: dict[str, Any], expected: int) -> EmbeddedBatch:
        """Return the vectors in the JSON object of an embeddings answer; `expected` is their required number.

        Raises:
            EmbedderBroken: the vectors cannot be decoded, are fewer or more than expected, or are not finite or of
                length zero in half precision.
            DimensionMismatch: the vectors have another number of dimensions than expected.
        """
        usage = payload.get("usage") or {}
        vectors, digest = self._decode(payload, expected), payload.get("digest")
        return EmbeddedBatch(
            vectors,
            int(usage.get("total_tokens", 0)),
            int(usage.get("truncated_inputs", 0)),
            digest if isinstance(digest, str) else None,
        )

    def scores(self, payload: dict[str, Any], expected: int) -> list[float]:
        """Return the scores in the JSON object of a rerank answer in the order of the texts, of which `expected` is the
        number.

        Raises:
            EmbedderBroken: the answer does not have one finite score for each text.
        """
        try:
            found = {int(entry["index"]): float(entry["relevance_score"]) for entry in payload["results"]}
            scores = [found[index] for index in range(expected)]
        except (KeyError, TypeError, ValueError):
            raise self._malformed("its scores cannot be read") from None
        if len(payload["results"]) != expected or not np.isfinite(scores).all():
            raise self._malformed(f"it does not have one finite score for each of {expected} texts")
        return scores

    def model_info(self, payload: dict[str, Any]) -> ServedModel:
        """Return the first model in the JSON object of a model list.

        Raises:
            EmbedderBroken: the list has no usable entry.
        """
        try:
            served = payload["data"][0]
            return ServedModel(
                name=str(served["id"]),
                dimensions=int(served["dimensions"]),
                max_tokens=served.get("max_tokens"),
                pooling=served.get("pooling"),
                digest=served.get("digest"),
            )
        except (KeyError, IndexError, TypeError, ValueError):
            raise self._malformed("its model list has no usable entry") from None

    def _refusal(self, response: httpx.Response) -> MemoryIndexError:
        status, code = response.status_code, _code(response)
        where = f"The embedder at {self.base_url} answered {status}{code}."
        if status == 429:
            remedy = "Its queue is full; repeat the request after the time that it named."
            return EmbedderBusy(where, remedy, retry_after=_retry_after(response))
        if status in _RETRYABLE:
            remedy = "It is loading or draining; repeat the request later, and read its pod's log if this lasts."
            resend = Resend.FREELY if code == " (draining)" else Resend.NEVER
            return EmbedderUnavailable(where, remedy, retry_after=_retry_after(response), resend=resend)
        if status in {401, 403}:
            return EmbedderUnauthorized(where, "Give the API key that the embedder was started with.")
        if status == 404:
            return ModelMismatch(where, f"It does not serve the model {self.model!r}; see its /v1/models.")
        return EmbedderRejected(where, "The request itself is refused; repeating it will not help.")

    def _decode(self, payload: dict[str, Any], expected: int) -> Vectors:
        try:
            entries = sorted(payload["data"], key=lambda entry: int(entry["index"]))
            vectors = np.stack([_vector(entry["embedding"]) for entry in entries])
        except (KeyError, TypeError, ValueError, binascii.Error):
            raise self._malformed("its vectors cannot be decoded") from None
        if len(vectors) != expected:
            raise self._malformed(f"it holds {len(vectors)} vectors for {expected} inputs")
        if not (np.abs(vectors) <= _LARGEST_HALF).all():  # false for NaN, too
            raise self._malformed("a vector holds a number that is not finite in half precision")
        if not all(map(has_direction, vectors)):
            raise self._malformed("a vector has the length zero in half precision")
        if self.dimensions is not None and vectors.shape[1] != self.dimensions:
            raise DimensionMismatch(
                f"The embedder at {self.base_url} yields {vectors.shape[1]} dimensions, not {self.dimensions}.",
                "Make the configured dimensions equal those of the model that it serves.",
            )
        return vectors

    def _malformed(self, what: str) -> EmbedderBroken:
        return EmbedderBroken(
            f"The answer of the embedder at {self.base_url} is unusable: {what}.",
            "Check that the URL is that of a memory-embedder of the same release.",
        )


def _vector(encoded: object) -> Vectors:
    if isinstance(encoded, str):
        return np.frombuffer(base64.b64decode(encoded, validate=True), dtype="<f4")
    return np.asarray(encoded, dtype=np.float32)


def _resend(error: Exception) -> Resend:
    """Return whether another pod may answer a request that failed with an error of the HTTP library."""
    if isinstance(error, httpx.ConnectError):
        return Resend.FREELY
    return Resend.ONCE if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError) else Resend.NEVER


def _retry_after(response: httpx.Response) -> float:
    named = retry_after(response)
    return _DEFAULT_RETRY_AFTER if named is None else named


def _code(response: httpx.Response) -> str:
    """Return the service's error code in brackets, or ""; never its message, which might echo the request's texts."""
    try:
        error = response.json()["error"]
        code = error.get("code") or error.get("type")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    known = isinstance(code, str) and len(code) <= _CODE_LENGTH and code.replace("_", "").replace("-", "").isalnum()
    return f" ({code})" if known else ""
