"""Builds the requests of third-party embedders and reads their answers, without sending anything.

An answer is turned into the form of OpenAI's, whose vectors are then checked as those of our own service are:
their number, order and length, that each number is finite in half precision, and that none is zero throughout. Not all
servers give vectors of length 1, so each vector is divided by its length. The servers name no file of the model.

The prefixes of queries and documents are put before the texts here, since these servers do not know them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
import numpy as np

from memory_recall.embedding.apis import MODELS_PATHS, EmbedderOptions, NoListingError
from memory_recall.embedding.bounded_answer import Answer, Bounds, Request, UnusableAnswerError
from memory_recall.embedding.whole_text import whole
from memory_recall.embedding.wire import EmbeddedBatch, WireFormat
from memory_recall.errors import EmbedderBroken, MemoryIndexError, ModelMismatch

_LISTING = Bounds(1 << 20, 65_536)  # of an answer: gateways list hundreds of models, each with its prices
_NAMES_IN_A_MESSAGE = 5
_LONGEST_NAME = 100
# Answers to a request that may pass with fewer or shorter texts. Servers differ: llama.cpp's answers 500 to a text that
# is longer than its context, vLLM 400, text-embeddings-inference 413 to too many texts, and infinity 422.
_TOO_LARGE, _FAILED = 413, 500
_DIVISIBLE = frozenset({400, _TOO_LARGE, 422, _FAILED})


class RefusedRequestError(Exception):
    """A server refused a request that may pass with fewer or shorter texts; `error` is raised if it does not."""

    def __init__(self, error: MemoryIndexError) -> None:
        super().__init__(error.message)
        self.error = error


class TooManyTextsError(RefusedRequestError):
    """A server refused a request because of its size."""


class FailedRequestError(RefusedRequestError):
    """A server failed on a request, either because of its size or for a reason that may pass."""


_KINDS: dict[int, type[RefusedRequestError]] = {_TOO_LARGE: TooManyTextsError, _FAILED: FailedRequestError}


@dataclass(frozen=True, slots=True)
class OtherWire(WireFormat):
    """The wire format of a third-party embedder, whose options name its API."""

    options: EmbedderOptions

    @property
    def served_as(self) -> str | None:
        """The model's name at the server."""
        return self.options.name_of(self.model)

    def embeddings(
        self,
        texts: Sequence[str],
        input_type: str,
        timeout: httpx.Timeout,
        *,
        skip: bool = False,  # noqa: ARG002  (such a server fails a request whole)
    ) -> Request:
        """Return the request for the vectors of texts."""
        path, body = self.options.request(self.model, list(map(whole, texts)), input_type, self.dimensions)
        return Request("POST", path, self.bounds(len(texts)), timeout, body)

    def listing(self, timeout: httpx.Timeout) -> Request | None:
        """Return the request for what the server says about its models; None if it says nothing."""
        path = MODELS_PATHS[self.options.api]
        return None if path is None else Request("GET", path, _LISTING, timeout)

    def check_listing(self, answer: Answer) -> None:
        """Check that the server lists the model. A server that has no list is not asked for one.

        Raises:
            ModelMismatch: the server serves other models.
            MemoryIndexError: the server refused the request, or its answer is no list of models.
        """
        if answer.status == 404:
            return
        if answer.status != 200:
            raise self._refusal(answer)
        try:
            listing = self.options.listing(answer.json(), self.model or "")
        except (NoListingError, UnusableAnswerError):
            raise self.unusable("it is no list of models") from None
        if listing.found is None:
            names = ", ".join(name[:_LONGEST_NAME] for name in listing.names[:_NAMES_IN_A_MESSAGE]) or "no model"
            raise ModelMismatch(
                f"The embedder at {self.base_url} serves {names}, not {self.served_as}.",
                "Give the name that the model has there: spec.embedder.external.model, or MEMORY_EMBEDDER_SERVED_AS.",
            )

    def payload(self, answer: Answer) -> dict[str, Any]:
        """Return the vectors of an answer in the form of OpenAI's.

        Raises:
            RefusedRequestError: the server refused the request, and may accept one with fewer or shorter texts.
            MemoryIndexError: the server refused the request, or its answer cannot be read.
        """
        if answer.status in _DIVISIBLE:
            raise _KINDS.get(answer.status, RefusedRequestError)(self._refusal(answer))
        if answer.status != 200:
            raise self._refusal(answer)
        try:
            return self.options.in_openai_form(answer.json())
        except UnusableAnswerError as error:
            raise self.unusable(str(error)) from None
        except (KeyError, TypeError, AttributeError):
            raise self.unusable("its vectors cannot be found") from None

    def batch(self, payload: dict[str, Any], expected: int, *, skip: bool = False) -> EmbeddedBatch:  # noqa: ARG002  (such a server fails a request whole)
        """Return the vectors of an answer, each of length 1.

        Raises:
            EmbedderBroken, DimensionMismatch: as of `WireFormat`; or a memory-embedder has answered, which knows the
                prefixes, so that each text would have two.
        """
        found = self._checked(payload, expected)
        if found.digest is not None:
            raise EmbedderBroken(
                f"The embedder at {self.base_url} is a memory-embedder, which puts the prefixes before texts itself.",
                "Set its API to MemoryIndex: spec.embedder.external.api, or MEMORY_EMBEDDER_API.",
            )
        lengths = np.linalg.norm(found.vectors, axis=1, keepdims=True)
        return replace(found, digest=None, vectors=found.vectors / lengths if expected else found.vectors)

    def unusable(self, what: str) -> EmbedderBroken:
        """Return the error for an answer that cannot be used; `what` says why and quotes nothing of it."""
        return EmbedderBroken(
            f"The answer of the embedder at {self.base_url} is unusable: {what}.",
            f"Check that the URL is that of a server with the API {self.options.api}, and that it embeds.",
        )
