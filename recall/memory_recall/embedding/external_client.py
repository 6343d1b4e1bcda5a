"""The HTTP client of third-party embedders, be it a server in the cluster or a hosted provider.

A request holds the texts, the model's name and whatever the API demands; nothing else of a memory. A list of texts is
divided into requests of a size that servers take; a smaller size is used from then on if a server says that it was too
large. Many servers refuse a text that is longer than the model reads, instead of truncating it. Therefore a single text
that is refused is sent again with its first half alone, a quarter and so on. A recall has no time for many of these, so
of a query no more is sent at first than the model may read.

Such a server names no file of its model. Therefore the vectors of a few fixed texts, the canary, are asked for at first
and every hour, and whoever knows the model compares them with those that were recorded.

Other failures are not repeated here: a recall has no time for it, and workers divide and wait by their own rules.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import httpx

from memory_recall.embedding.address_policy import is_beyond_cluster
from memory_recall.embedding.api_key import ApiKey, BearerKey
from memory_recall.embedding.apis import EmbedderApi, EmbedderOptions
from memory_recall.embedding.bounded_answer import Answer, BeforeSending, Request, UnusableAnswerError
from memory_recall.embedding.canary import CANARY_DOCUMENTS, CANARY_QUERY, Canary
from memory_recall.embedding.client import AsyncEmbedder, EmbedderClient
from memory_recall.embedding.http_client import direct_transport
from memory_recall.embedding.other_wire import FailedRequestError, OtherWire, RefusedRequestError, TooManyTextsError
from memory_recall.embedding.profiles import PROFILES
from memory_recall.embedding.served_model import ServedModel
from memory_recall.embedding.tls import EmbedderTls
from memory_recall.embedding.wire import EmbeddedBatch, Vectors, joined
from memory_recall.errors import EmbedderUnauthorized, InvalidConfiguration

_TIMEOUT = httpx.Timeout(60.0, connect=5.0)
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20)
_SHORTEST = 200  # characters; a text that is refused although it is shorter is refused for another reason
_TOKEN_CHARACTERS = 8  # of prose, twice as many as a token has on average
_CANARY_SECONDS = 3600.0  # after which the vectors of the fixed texts are compared once more


class ExternalEmbedder(AsyncEmbedder):
    """Asynchronous client of an embedder that is not ours, such as llama-server. It must be closed.

    It is safe for concurrent use.

    Args:
        base_url: the server's address, without `/v1`.
        model: our name of the model, by which its profile is found.
        api_key: the key or the path of a file that holds it, read anew for each request.
        options: the server's API, the model's name there, and the prefixes of texts.
        dimensions: the numbers of a vector; where it is not known, `model_info` learns it from a first vector.
        query_egress: whether texts may be sent to a hosted provider, or to an address beyond the cluster.
        ca_file: certificates of authorities of one's own, by which the server is verified, too.

    Raises:
        InvalidConfiguration: texts may not be sent to the address, the API key is an empty text, or `ca_file` holds no
            certificates.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: ApiKey | None = None,
        *,
        options: EmbedderOptions,
        dimensions: int | None = None,
        query_egress: bool = False,
        ca_file: Path | None = None,
        timeout: httpx.Timeout | float = _TIMEOUT,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        key = None if api_key is None else BearerKey(api_key)
        if options.api is EmbedderApi.MEMORY_INDEX:
            raise InvalidConfiguration("A memory-embedder has its own client.", "Use EmbedderClient.")
        wire = OtherWire(base_url.rstrip("/"), model, dimensions, options)
        self.model: str | None = model
        self._other = wire
        self._canary: str | None = None
        self._measured_at = -math.inf
        self._timeout = httpx.Timeout(timeout)
        verify = EmbedderTls.of(ca_file, base_url)
        http = httpx.AsyncClient(
            base_url=wire.base_url,
            auth=key,
            transport=transport or direct_transport(wire.base_url, verify, _LIMITS),
            verify=verify,
            limits=_LIMITS,
            trust_env=is_beyond_cluster(wire.base_url),
        )
        hosted = options.leaves_cluster(wire.base_url)
        super().__init__(wire, http, batch=options.batch, query_egress=query_egress, hosted=hosted)

    async def model_info(self) -> ServedModel:
        """Return the model; in place of its file's digest, which no such server tells, it has a canary (ADR 40).

        Raises:
            MemoryIndexError: the server does not serve the model, or embeds no text.
        """
        listing = self._other.listing(self._timeout)
        if listing is not None:
            await self._read(listing, self._other.check_listing)
        return await self._measure()

    async def embed_documents(
        self, texts: Sequence[str], *, skip: bool = False, before_sending: BeforeSending | None = None
    ) -> EmbeddedBatch:
        """Embed texts of memories. The batch has the canary of the model.

        The canary is at most an hour old. That of a hosted provider is as old as the last `model_info`, since between
        the last look at a row and the request with its text nothing else is to happen.
        """
        if texts and not self.hosted and time.monotonic() - self._measured_at > _CANARY_SECONDS:
            await self._measure()
        found = await super().embed_documents(texts, skip=skip, before_sending=before_sending)
        return replace(found, digest=self._canary)

    async def embed_query(self, text: str) -> Vectors:
        """Embed one query; the caller makes sure that it is not marked sensitive if `hosted` is true.

        Of a long query its beginning is sent: eight characters for each token that the model reads, if that is known.
        """
        known = PROFILES.get(str(self.model))
        most = None if known is None or known.max_tokens is None else known.max_tokens * _TOKEN_CHARACTERS
        vector: Vectors = (await self._embed([text[:most]], "query")).vectors[0]
        return vector

    async def _measure(self) -> ServedModel:
        """Embed the fixed texts of the canary, and return the served model, which their vectors identify."""
        documents = await self._embed(CANARY_DOCUMENTS, "document")
        query = await self._embed([CANARY_QUERY], "query")
        self._canary = str(Canary.of([*documents.vectors.tolist(), *query.vectors.tolist()]))
        self._measured_at = time.monotonic()
        return ServedModel(str(self.model), documents.vectors.shape[1], self._canary)

    async def _embed(
        self,
        texts: Sequence[str],
        input_type: str,
        *,
        skip: bool = False,  # noqa: ARG002  (such a server fails a request whole)
        before_sending: BeforeSending | None = None,
    ) -> EmbeddedBatch:
        if not texts:
            return self._wire.empty_batch()
        parts = self.requests(texts)
        return joined([await self._embed_part(part, input_type, before_sending) for part in parts])

    async def _embed_part(
        self, texts: Sequence[str], input_type: str, before_sending: BeforeSending | None
    ) -> EmbeddedBatch:
        """Embed texts in one request, or in several if the server refuses them as too many."""
        try:
            return await self._request(texts, input_type, before_sending)
        except RefusedRequestError as refused:
            if len(texts) == 1:
                return await self._embed_shortened(texts[0], input_type, refused, before_sending)
            if not isinstance(refused, TooManyTextsError):
                raise refused.error from None
            half = len(texts) // 2
            self._batch = min(self._batch, half)
        halves = (texts[:half], texts[half:])
        return joined([await self._embed_part(part, input_type, before_sending) for part in halves])

    async def _embed_shortened(
        self, text: str, input_type: str, refused: RefusedRequestError, before_sending: BeforeSending | None
    ) -> EmbeddedBatch:
        """Embed as much of the beginning of a refused text as the server accepts: half of it, a quarter and so on.

        Where the server failed on the whole text, it is asked for that once more as soon as it has answered: otherwise
        a fault of a moment would leave the vector of a part for good.
        """
        whole, may_have_passed = text, isinstance(refused, FailedRequestError)
        while len(text) > _SHORTEST:
            text = text[: len(text) // 2]
            try:
                found = await self._request([text], input_type, before_sending)
                if may_have_passed:
                    with suppress(RefusedRequestError):
                        return await self._request([whole], input_type, before_sending)
            except RefusedRequestError as again:
                refused = again
            else:
                return replace(found, truncated=frozenset({0}))
        raise refused.error from None

    async def _request(
        self, texts: Sequence[str], input_type: str, before_sending: BeforeSending | None
    ) -> EmbeddedBatch:
        request = self._wire.embeddings(texts, input_type, self._timeout)
        request = replace(request, before_sending=before_sending)
        try:
            return await self._send(self._http, request, lambda wire, payload: wire.batch(payload, len(texts)))
        except EmbedderUnauthorized as error:
            remedy = "Put a valid key into the Secret, or into the file that holds the key; it is read anew."
            raise EmbedderUnauthorized(error.message, remedy) from None

    async def _read(self, request: Request, check: Callable[[Answer], None]) -> None:
        try:
            await self._exchange(self._http, request, check)
        except UnusableAnswerError as error:
            raise self._wire.unusable(str(error)) from None
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise self._wire.unreachable(error) from None


def embedder_client(
    base_url: str,
    model: str | None,
    api_key: ApiKey | None = None,
    *,
    options: EmbedderOptions,
    dimensions: int | None = None,
    query_egress: bool = False,
    ca_file: Path | None = None,
) -> EmbedderClient | ExternalEmbedder:
    """Make the client of an embedder with the API that the options name.

    Raises:
        InvalidConfiguration: the client refuses its arguments, or `options` give no name for the model at an embedder
            that is not ours.
    """
    if options.api is EmbedderApi.MEMORY_INDEX:
        return EmbedderClient(
            base_url, model, api_key, dimensions=dimensions, query_egress=query_egress, ca_file=ca_file
        )
    if model is None:
        raise InvalidConfiguration(f"An embedder with the API {options.api} needs a model's name.", "Name the model.")
    return ExternalEmbedder(
        base_url,
        model,
        api_key,
        options=options,
        dimensions=dimensions,
        query_egress=query_egress,
        ca_file=ca_file,
    )
