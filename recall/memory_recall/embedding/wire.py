"""Builds the requests of the embedding service's HTTP API and reads its answers, without sending anything.

Vectors travel as base64 of little-endian float32, since parsing a JSON list of 1024 numbers takes longer than embedding
a query. A list of numbers is understood, too. Vectors are checked once, here: their number, order and length, that each
number is finite in half precision, and that none is zero throughout.

Only this module converts failures of the service into `MemoryIndexError`. No error carries a text that was sent: the
service's own message is dropped, its machine-readable code is kept.
"""

import base64
import binascii
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from memory_recall.embedding.bounded_answer import Answer, Bounds, Request, UnusableAnswerError
from memory_recall.embedding.canary import may_be_same_file
from memory_recall.embedding.direction import has_direction
from memory_recall.embedding.served_model import ServedModel
from memory_recall.embedding.whole_text import whole
from memory_recall.errors import (
    DimensionMismatch,
    EmbedderBroken,
    EmbedderBusy,
    EmbedderRejected,
    EmbedderUnauthorized,
    EmbedderUnavailable,
    EmptyText,
    MemoryIndexError,
    ModelMismatch,
    Resend,
    UnusableText,
)

Vectors = npt.NDArray[np.float32]

EMBEDDINGS_PATH = "/v1/embeddings"
MODELS_PATH = "/v1/models"
RERANK_PATH = "/v1/rerank"
_DEFAULT_RETRY_AFTER = 1.0
_RETRYABLE = frozenset({408, 425, 500, 502, 503, 504})
_MOST_DIMENSIONS = 4000  # of a vector that Postgres can index; assumed where the number is not known
_MOST_STORED_DIMENSIONS = 16_000  # of a vector that Postgres can store
_NUMBER_BYTES = 24  # of a number in a list, which takes most; base64 takes 5
_OTHER_BYTES = 65_536  # of an answer: whatever is no vector
_ENTRY_VALUES = 16  # of each text, beside its vector
_OTHER_VALUES = 1024
_FEW = Bounds(_OTHER_BYTES, _OTHER_VALUES)
_UNUSABLE = "unusable_vector"  # the service's code for a text without a finite vector
_REFUSED = {"empty_input": EmptyText, _UNUSABLE: UnusableText}  # by the service's codes for one text
_MOST_COUNTED = 1 << 40
_LARGEST_HALF = float(np.finfo(np.float16).max)  # vectors are stored as halfvec


@dataclass(frozen=True, slots=True)
class EmbeddedBatch:
    """The vectors of one request, an array (texts, dimensions), and its number of tokens.

    `digest` is that of the model file that made the vectors; it is None if the service does not say. `truncated` has
    the places of the vectors of texts whose end the model has not read, as far as the service names them. `skipped` has
    the places in the request of texts that have no vector, with the class of the error that each alone would raise;
    there are none unless the request asked for it.
    """

    vectors: Vectors
    tokens: int
    digest: str | None = None
    truncated: frozenset[int] = frozenset()
    skipped: Mapping[int, type[EmbedderRejected]] = field(default_factory=dict)


def joined(answers: Sequence[EmbeddedBatch]) -> EmbeddedBatch:
    """Join the answers of at least one request, in their order. None of them may have skipped texts.

    Raises:
        ModelMismatch: the answers come from different files, as while the embedder is rolled out.
    """
    truncated: set[int] = set()
    before = 0
    digest: str | None = None
    for answer in answers:
        if not may_be_same_file(digest, answer.digest):
            raise ModelMismatch(
                "The answers to one batch come from different files of the embedder's model.",
                "Start again once the embedder is rolled out.",
            )
        digest = answer.digest or digest
        truncated |= {before + place for place in answer.truncated}
        before += len(answer.vectors)
    vectors = np.concatenate([answer.vectors for answer in answers])
    return EmbeddedBatch(vectors, sum(answer.tokens for answer in answers), digest, frozenset(truncated))


@dataclass(frozen=True, slots=True)
class WireFormat:
    """Builds requests to the embedding service at `base_url` and reads its responses.

    If `dimensions` is None, vectors of any number of dimensions are accepted.
    """

    base_url: str
    model: str | None
    dimensions: int | None

    def embeddings(
        self, texts: Sequence[str], input_type: str, timeout: httpx.Timeout, *, skip: bool = False
    ) -> Request:
        """Return the request for the vectors of texts. With `skip`, those that cannot be embedded do not fail it."""
        body: dict[str, Any] = {"input": list(map(whole, texts)), "encoding_format": "base64", "input_type": input_type}
        if skip:
            body["on_error"] = "skip"
        if self.model:
            body["model"] = self.model
        return Request("POST", EMBEDDINGS_PATH, self.bounds(len(texts)), timeout, body)

    def reranking(self, query: str, texts: Sequence[str], timeout: httpx.Timeout) -> Request:
        """Return the request for the scores of texts.

        Raw scores differ even where a sigmoid of them rounds to one number.
        """
        body = {"query": whole(query), "documents": list(map(whole, texts)), "raw_scores": True}
        bounds = Bounds(_OTHER_BYTES, _OTHER_VALUES + _ENTRY_VALUES * len(texts))
        return Request("POST", RERANK_PATH, bounds, timeout, body)

    def models(self, timeout: httpx.Timeout) -> Request:
        """Return the request for the list of models."""
        return Request("GET", MODELS_PATH, _FEW, timeout)

    def bounds(self, texts: int) -> Bounds:
        """Return the bounds of an answer that has a vector for each of `texts` texts."""
        numbers = texts * (self.dimensions or _MOST_DIMENSIONS)
        return Bounds(_OTHER_BYTES + numbers * _NUMBER_BYTES, _OTHER_VALUES + numbers + texts * _ENTRY_VALUES)

    def empty_batch(self) -> EmbeddedBatch:
        """Return the result for an empty list of texts, for which no request is sent."""
        return EmbeddedBatch(np.empty((0, self.dimensions or 0), dtype=np.float32), 0)

    def unreachable(self, error: Exception) -> EmbedderUnavailable:
        """Return `EmbedderUnavailable` for an error of the HTTP library, whose own message may quote the request."""
        if isinstance(error, httpx.InvalidURL):
            return EmbedderUnavailable("The embedder's URL is not a URL.", "Give it as http://NAME.NAMESPACE.svc:8080.")
        refused = _not_verified(error)
        if refused is not None:
            return EmbedderUnavailable(
                f"The embedder at {self.base_url} shows a certificate that is not accepted: {refused.verify_message}.",
                "Give the certificates of the authority that signs it: MEMORY_EMBEDDER_CA_FILE.",
                retry_after=_DEFAULT_RETRY_AFTER,
                resend=_resend(error),
            )
        return EmbedderUnavailable(
            f"The embedder at {self.base_url} could not be reached ({type(error).__name__}).",
            "Check that its Service has a ready pod and that a NetworkPolicy lets this pod reach it.",
            retry_after=_DEFAULT_RETRY_AFTER,
            resend=_resend(error),
        )

    def payload(self, answer: Answer) -> dict[str, Any]:
        """Return the JSON object in an answer of the service.

        Raises:
            MemoryIndexError: the service refused the request, or its answer holds no JSON object.
        """
        if answer.status != 200:
            raise self._refusal(answer)
        try:
            payload = answer.json()
        except UnusableAnswerError as error:
            raise self.unusable(str(error)) from None
        if not isinstance(payload, dict):
            raise self.unusable("it is not an object")
        return payload

    def batch(self, payload: dict[str, Any], expected: int, *, skip: bool = False) -> EmbeddedBatch:
        """Return the vectors in the JSON object of an embeddings answer; `expected` is the number of texts.

        With `skip`, texts that the answer names as skipped need no vector.

        Raises:
            EmbedderBroken: the vectors cannot be decoded, are fewer or more than expected, or one is not finite or is
                zero in half precision; or the answer names no file of the model, so another service has given it,
                which has put no prefix before the texts.
            DimensionMismatch: the vectors have another number of dimensions than expected.
        """
        found = self._checked(payload, expected, skip=skip)
        if found.digest is None:
            raise EmbedderBroken(
                f"The embedder at {self.base_url} names no file of its model, so it is no memory-embedder.",
                "Say which API it has: spec.embedder.external.api, or MEMORY_EMBEDDER_API, such as OpenAI.",
            )
        return found

    def _checked(self, payload: dict[str, Any], expected: int, *, skip: bool = False) -> EmbeddedBatch:
        skipped = self._skipped(payload, expected) if skip else {}
        places = [place for place in range(expected) if place not in skipped]
        vectors, truncated = self._decode(payload, places)
        return EmbeddedBatch(
            vectors, _count(payload.get("usage"), "total_tokens"), _text(payload, "digest"), truncated, skipped
        )

    def scores(self, payload: dict[str, Any], expected: int) -> list[float]:
        """Return the scores of `expected` texts, in the order of the texts, from the JSON object of a rerank answer.

        Raises:
            EmbedderBroken: the answer does not have one finite score for each text.
        """
        try:
            found = {_index(entry): float(entry["relevance_score"]) for entry in payload["results"]}
            scores = [found[index] for index in range(expected)]
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self.unusable("its scores cannot be read") from None
        if len(payload["results"]) != expected or not np.isfinite(scores).all():
            raise self.unusable(f"it does not have one finite score for each of {expected} texts")
        return scores

    def model_info(self, payload: dict[str, Any]) -> ServedModel:
        """Return the first model in the JSON object of a model list.

        Raises:
            EmbedderBroken: the list has no usable entry.
        """
        try:
            served = payload["data"][0]
            name, dimensions, _ = str(served["id"]), served["dimensions"], served.keys()
        except (KeyError, IndexError, TypeError):
            raise self.unusable("its model list has no usable entry") from None
        if type(dimensions) is not int or not 0 < dimensions <= _MOST_STORED_DIMENSIONS:
            raise self.unusable("its model has no usable number of dimensions")
        return ServedModel(
            name=name,
            dimensions=dimensions,
            max_tokens=_count(served, "max_tokens") or None,
            pooling=_text(served, "pooling"),
            digest=_text(served, "digest"),
        )

    def _refusal(self, answer: Answer) -> MemoryIndexError:
        status, code = answer.status, answer.error_code()
        where = f"The embedder at {self.base_url} answered {status}{code and f' ({code})'}."
        if status == 429:
            remedy = "Its queue is full; repeat the request after the time that it named."
            return EmbedderBusy(where, remedy, retry_after=_retry_after(answer))
        if status in _RETRYABLE:
            remedy = "It is loading or draining; repeat the request later, and read its pod's log if this lasts."
            resend = Resend.FREELY if code == "draining" else Resend.NEVER
            return EmbedderUnavailable(where, remedy, retry_after=_retry_after(answer), resend=resend)
        if status in {401, 403}:
            return EmbedderUnauthorized(where, "Give the API key that the embedder was started with.")
        if status == 404:
            return ModelMismatch(where, f"It does not serve the model {self.model!r}; see its /v1/models.")
        if code == _UNUSABLE:
            remedy = "Leave this text out, or change it; the model can embed the others."
            return UnusableText(where, remedy)
        return EmbedderRejected(where, "The request itself is refused; repeating it will not help.")

    def unusable(self, what: str) -> EmbedderBroken:
        """Return the error for an answer that cannot be used; `what` says why and quotes nothing of it."""
        return EmbedderBroken(
            f"The answer of the embedder at {self.base_url} is unusable: {what}.",
            "Check that the URL is that of a memory-embedder of the same release.",
        )

    def _skipped(self, payload: dict[str, Any], expected: int) -> dict[int, type[EmbedderRejected]]:
        try:
            named = payload.get("skipped") or []
            skipped = {_index(entry): _REFUSED.get(entry["code"], EmbedderRejected) for entry in named}
        except (KeyError, TypeError):
            raise self.unusable("what it has skipped cannot be read") from None
        if not skipped.keys() <= set(range(expected)):
            raise self.unusable(f"it has skipped what is none of {expected} inputs")
        return skipped

    def _decode(self, payload: dict[str, Any], places: Sequence[int]) -> tuple[Vectors, frozenset[int]]:
        """Return the vectors of the texts at these places, and which of the vectors are of truncated texts."""
        try:
            found = {_index(entry): entry for entry in payload["data"]}
            embeddings = [found[place]["embedding"] for place in places if place in found]
            entries = len(payload["data"])
        except (KeyError, TypeError):
            raise self.unusable("its vectors cannot be decoded") from None
        if entries != len(places) or found.keys() != set(places):
            raise self.unusable(f"it does not hold one vector for each of {len(places)} inputs")
        truncated = frozenset(at for at, place in enumerate(places) if found[place].get("truncated") is True)
        if not places:
            return np.empty((0, self.dimensions or 0), dtype=np.float32), truncated
        try:
            vectors = np.stack(list(map(_vector, embeddings)))
        except (TypeError, ValueError, OverflowError, binascii.Error):
            raise self.unusable("its vectors cannot be decoded") from None
        if not (np.abs(vectors) <= _LARGEST_HALF).all():  # false for NaN, too
            raise self.unusable("a vector holds a number that is not finite in half precision")
        if self.dimensions not in {None, vectors.shape[1]}:
            raise DimensionMismatch(
                f"The embedder at {self.base_url} yields {vectors.shape[1]} dimensions, not {self.dimensions}.",
                "Make the configured dimensions equal those of the model that it serves.",
            )
        if not all(map(has_direction, vectors)):
            raise self.unusable("a vector is zero in half precision, so that it has no direction")
        return vectors, truncated


def _index(entry: Any) -> int:  # noqa: ANN401  (whatever the server sent)
    index = entry["index"]
    if type(index) is not int:
        raise TypeError
    return index


def _count(described: object, name: str) -> int:
    """Return a number of an object, or 0 where the server gives none that is usable, since nothing depends on it."""
    value = described.get(name) if isinstance(described, dict) else None
    return value if type(value) is int and 0 <= value < _MOST_COUNTED else 0


def _text(described: dict[str, Any], name: str) -> str | None:
    value = described.get(name)
    return value if isinstance(value, str) else None


def _vector(encoded: object) -> Vectors:
    if isinstance(encoded, str):
        return np.frombuffer(base64.b64decode(encoded, validate=True), dtype="<f4")
    numbers = np.asarray(encoded, dtype=np.float32)
    if numbers.ndim != 1:
        raise ValueError
    return numbers


def _not_verified(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the refusal of a certificate that led to an error of the HTTP library; None if another cause did."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _resend(error: Exception) -> Resend:
    """Return whether another pod may answer a request that failed with an error of the HTTP library."""
    if isinstance(error, httpx.ConnectError):
        return Resend.FREELY
    return Resend.ONCE if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError) else Resend.NEVER


def _retry_after(answer: Answer) -> float:
    return _DEFAULT_RETRY_AFTER if answer.retry_after is None else answer.retry_after
