"""The HTTP client of the embedding service, used by recalls and by the backfill and sync workers.

A connection of the pool always leads to the same pod, even while that pod is being stopped and refuses requests. A
request that is refused in this way is sent again on a new connection. For about a second after the stop, or longer on a
busy cluster, some nodes still direct new connections to the stopped pod, so several may fail. If the embedder has not
answered before, it is taken to be missing, and the request fails at once.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import httpx

from memory_recall.embedding.address_policy import check_egress, is_beyond_cluster
from memory_recall.embedding.api_key import ApiKey, BearerKey
from memory_recall.embedding.bounded_answer import Answer, BeforeSending, Request, UnusableAnswerError
from memory_recall.embedding.http_client import HttpClient, direct_transport
from memory_recall.embedding.requests import divided, estimated_tokens
from memory_recall.embedding.served_model import ServedModel
from memory_recall.embedding.tls import EmbedderTls
from memory_recall.embedding.wire import EmbeddedBatch, Vectors, WireFormat
from memory_recall.errors import EmbedderUnavailable, Resend
from memory_recall.retrying import Backoff, retry

DEFAULT_TIMEOUT = httpx.Timeout(120.0, connect=5.0)  # a cold pod takes long over a full batch of documents
_BATCH = 128  # texts of one request, where a client divides them
_MOST_TOKENS = 100_000  # of such a request: below the smallest limit of a hosted provider, 120,000
_QUERY_SECONDS = 30.0  # a query whose caller has given up must not occupy its connection for longer
_NEW_CONNECTIONS = 8  # on which a request is sent whose pod is being stopped, within about three seconds
_LIMITS = httpx.Limits(max_connections=96, max_keepalive_connections=8)
_BACKOFF = Backoff(first=0.1, longest=0.5)

T = TypeVar("T")


class AsyncEmbedder(HttpClient, ABC):
    """The base class of the asynchronous clients of embedders.

    `hosted` is true if texts leave the cluster: whoever sends some checks that they may, and a query that its caller
    marks sensitive is not sent. `model` is the model's name; None stands for any.
    """

    model: str | None

    def __init__(
        self, wire: WireFormat, http: httpx.AsyncClient, *, batch: int, query_egress: bool, hosted: bool = False
    ) -> None:
        """Take over an HTTP client. `hosted` says that texts leave the cluster, wherever the server is.

        Raises:
            InvalidConfiguration: texts may not be sent to the server.
        """
        check_egress(wire.base_url, "embedder", egress=query_egress, hosted=hosted)
        super().__init__(http)
        self.hosted = hosted or is_beyond_cluster(wire.base_url)
        self.base_url = wire.base_url
        self._wire = wire
        self._batch = batch
        self._has_answered = False

    async def embed_documents(
        self, texts: Sequence[str], *, skip: bool = False, before_sending: BeforeSending | None = None
    ) -> EmbeddedBatch:
        """Embed texts of memories; long ones are truncated. Sensitive texts must not be given to a hosted service.

        With `skip`, texts that the model cannot embed do not fail the request, as far as the service can do that: the
        batch names them, and has no vectors for them. `before_sending` is awaited before the texts are written to a
        connection, again for each repetition and part of the request.
        """
        return await self._embed(texts, "document", skip=skip, before_sending=before_sending)

    async def embed_queries(self, texts: Sequence[str]) -> EmbeddedBatch:
        """Embed many queries at once."""
        return await self._embed(texts, "query")

    def requests(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Divide the texts into lists, one for each request. A long text may get a list of its own."""
        return divided(texts, lambda text: estimated_tokens([text]), most_items=self._batch, most_cost=_MOST_TOKENS)

    @abstractmethod
    async def model_info(self) -> ServedModel:
        """Return the model that is served now."""

    @abstractmethod
    async def _embed(
        self, texts: Sequence[str], input_type: str, *, skip: bool = False, before_sending: BeforeSending | None = None
    ) -> EmbeddedBatch: ...

    async def _send(
        self, http: httpx.AsyncClient, request: Request, read: Callable[[WireFormat, dict[str, Any]], T]
    ) -> T:
        """Send a request and return what `read` makes of the JSON object of the answer."""
        wire = self._wire

        def read_answer(answer: Answer) -> T:
            self._has_answered = True
            return read(wire, wire.payload(answer))

        try:
            return await self._exchange(http, request, read_answer)
        except UnusableAnswerError as error:
            raise wire.unusable(str(error)) from None
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise wire.unreachable(error) from None


class EmbedderClient(AsyncEmbedder):
    """Asynchronous client of `POST /v1/embeddings`, `POST /v1/rerank` and `GET /v1/models`; safe for concurrent use.

    With `model` None, the service may serve any model. `api_key` is the key or the path of a file that holds it. Every
    answer is checked once, here: it has one vector for each text, of `dimensions` numbers, all finite in half
    precision. With `dimensions` None, the number that `model_info` reports is expected. `query_egress` says whether
    texts may be sent to an address beyond the cluster. `ca_file` holds certificates of authorities of one's own.

    Raises:
        InvalidConfiguration: texts may not be sent to the address, or `ca_file` holds no certificates.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: ApiKey | None = None,
        *,
        dimensions: int | None = None,
        query_egress: bool = False,
        ca_file: Path | None = None,
        timeout: httpx.Timeout | float = DEFAULT_TIMEOUT,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.model = model
        self._dimensions_given = dimensions is not None
        self._timeout = httpx.Timeout(timeout)
        self._query_timeout = httpx.Timeout(
            min(self._timeout.read or _QUERY_SECONDS, _QUERY_SECONDS), connect=self._timeout.connect
        )
        self._auth = BearerKey(api_key) if api_key else None
        self._transport = transport
        self._verify = EmbedderTls.of(ca_file, base_url)
        wire = WireFormat(base_url.rstrip("/"), model, dimensions)
        super().__init__(wire, self._connect(wire.base_url), batch=_BATCH, query_egress=query_egress)

    async def embed_query(self, text: str) -> Vectors:
        """Embed one query."""
        vector: Vectors = (await self.embed_query_batch(text)).vectors[0]
        return vector

    async def embed_query_batch(self, text: str) -> EmbeddedBatch:
        """Embed one query; return a batch of its vector, with the digest of the model file that made it."""
        return await self._embed([text], "query", limit=self._query_timeout)

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the reranker's score of each text, in the order of the texts; a higher score is better.

        Sensitive texts must not be given to a hosted service. The reranker is the one that is served beside the model.
        A call that is cancelled while there is no connection yet sends nothing of the texts any more.
        """
        if not texts:
            return []
        cancelled = False

        async def require_caller() -> None:
            if cancelled:  # the request goes on nevertheless, and a text may be marked sensitive by now
                raise EmbedderUnavailable("Nobody waits for the answer of the reranker any more.")

        request = replace(self._wire.reranking(query, texts, self._query_timeout), before_sending=require_caller)
        try:
            return await self._request(request, lambda wire, payload: wire.scores(payload, len(texts)))
        except asyncio.CancelledError:
            cancelled = True
            raise

    async def model_info(self) -> ServedModel:
        """Ask the service for its model. If `dimensions` was None, later vectors must have this model's dimensions."""
        info = await self._request(self._wire.models(self._timeout), WireFormat.model_info)
        if not self._dimensions_given:
            self._wire = replace(self._wire, dimensions=info.dimensions)
        return info

    async def _embed(
        self,
        texts: Sequence[str],
        input_type: str,
        *,
        skip: bool = False,
        before_sending: BeforeSending | None = None,
        limit: httpx.Timeout | None = None,
    ) -> EmbeddedBatch:
        if not texts:
            return self._wire.empty_batch()
        request = self._wire.embeddings(texts, input_type, limit or self._timeout, skip=skip)
        request = replace(request, before_sending=before_sending)
        return await self._request(request, lambda wire, payload: wire.batch(payload, len(texts), skip=skip))

    async def _request(self, request: Request, read: Callable[[WireFormat, dict[str, Any]], T]) -> T:
        try:
            return await self._send(self._http, request, read)
        except EmbedderUnavailable as error:
            if error.resend is Resend.NEVER or not self._has_answered:
                raise

        try:
            return await retry(
                lambda: self._send_anew(request, read),
                on=_may_be_sent_freely,
                give_up_after=None,
                attempts=_NEW_CONNECTIONS,
                backoff=_BACKOFF,
            )
        except EmbedderUnavailable:
            self._has_answered = False
            raise

    async def _send_anew(self, request: Request, read: Callable[[WireFormat, dict[str, Any]], T]) -> T:
        async with self._connect(self.base_url) as http:
            return await self._send(http, request, read)

    def _connect(self, base_url: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=base_url,
            auth=self._auth,
            timeout=self._timeout,
            transport=self._transport or direct_transport(base_url, self._verify, _LIMITS),
            verify=self._verify,
            trust_env=is_beyond_cluster(base_url),
            limits=_LIMITS,
        )


def _may_be_sent_freely(error: BaseException) -> bool:
    return isinstance(error, EmbedderUnavailable) and error.resend is Resend.FREELY
