"""A blocking client of the embedding service, for a memory server that embeds memories and queries itself.

The memory server calls these methods in a thread, so they may block. It embeds each memory when the memory is written,
and ignores errors of a recall. No request is made for a sensitive memory, even if the caller has not checked this, nor
for a sensitive query if it would leave the cluster.
"""

from pathlib import Path

import httpx

from memory_recall.embedding.address_policy import check_egress, is_beyond_cluster
from memory_recall.embedding.api_key import ApiKey, BearerKey
from memory_recall.embedding.bounded_answer import UnusableAnswerError, fetch_blocking
from memory_recall.embedding.http_client import direct_socket_options
from memory_recall.embedding.tls import EmbedderTls
from memory_recall.embedding.wire import WireFormat
from memory_recall.errors import InvalidInput

_TIMEOUT = 5.0  # the API's hook gives up after six seconds


class HttpEmbedder:
    """Embeds memories and queries through the embedding service, one text per request. It is thread-safe.

    `query_egress` says whether texts may be sent to an address beyond the cluster. `api_key` is a key or the path of
    its file, which is read for each request. `ca_file` holds certificates of authorities of one's own.

    Raises:
        InvalidConfiguration: texts may not be sent to the address, `ca_file` holds no certificates, or a key that is
            given as a text cannot be sent.
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
        timeout: float = _TIMEOUT,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        check_egress(base_url, "embedder", egress=query_egress, hosted=False)
        self.model = model
        self.hosted = is_beyond_cluster(base_url)
        self._wire = WireFormat(base_url.rstrip("/"), model, dimensions)
        self._timeout = httpx.Timeout(timeout)
        verify, options = EmbedderTls.of(ca_file, base_url), direct_socket_options(base_url)
        if transport is None and options is not None:
            transport = httpx.HTTPTransport(verify=verify, trust_env=False, socket_options=options)
        self._http = httpx.Client(
            base_url=self._wire.base_url,
            auth=BearerKey(api_key) if api_key else None,
            transport=transport,
            verify=verify,
            trust_env=self.hosted,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def embed_document(self, content: str, *, is_sensitive: bool) -> list[float] | None:
        """Return the vector of a memory, or None for a sensitive memory, whose text never leaves the process.

        Raises:
            MemoryIndexError: the embedder gave no vector; the row stays pending and the sync worker embeds it later.
        """
        return None if is_sensitive else self._embed(content, "document")

    def embed_query(self, query: str, *, is_sensitive: bool = False) -> list[float]:
        """Return the vector of a query.

        Raises:
            InvalidInput: the query is sensitive, and the embedder is beyond the cluster.
            MemoryIndexError: the embedder gave no vector.
        """
        if is_sensitive and self.hosted:
            message = "The query is sensitive and would be sent to an embedder beyond the cluster."
            raise InvalidInput(message, "Search by words alone.")
        return self._embed(query, "query")

    def _embed(self, text: str, input_type: str) -> list[float]:
        try:
            answer = fetch_blocking(self._http, self._wire.embeddings([text], input_type, self._timeout))
        except UnusableAnswerError as error:
            raise self._wire.unusable(str(error)) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._wire.unreachable(error) from None
        vector: list[float] = self._wire.batch(self._wire.payload(answer), 1).vectors[0].tolist()
        return vector
