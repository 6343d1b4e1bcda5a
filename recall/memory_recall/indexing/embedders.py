"""The embedders that a process uses: the configured embedder, and those whose addresses the database names.

The configured embedder is our own service or a third-party one. During a model swap a worker needs the embedders of
both models. After the swap it continues with the embedder of the new active model, without a restart, if that is a
memory-embedder beside the configured one. Whoever can write to the database can have texts sent nowhere else: the
addresses, keys and consent of all others come from the settings alone.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self

from memory_recall.embedding.address_policy import is_trusted_embedder_url, may_have_key
from memory_recall.embedding.apis import OWN_OPTIONS, EmbedderApi
from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.external_client import ExternalEmbedder, embedder_client
from memory_recall.errors import InvalidConfiguration, ModelMismatch
from memory_recall.indexing.document_embedder import DocumentEmbedder
from memory_recall.indexing.hosted_embedder import HostedEmbedder, RateLimits
from memory_recall.indexing.queue_sql import PendingRow, still_shareable
from memory_recall.indexing.sendable_rows import SendableRows
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.session import Session
from memory_recall.retrying import OutageListener
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.schema.revisions import require_schema
from memory_recall.settings import Settings

Client = EmbedderClient | ExternalEmbedder
Embedder = Client | HostedEmbedder
Connect = Callable[[str, str], AbstractAsyncContextManager[Embedder]]

_LIMITS = RateLimits(requests=2000, tokens=3_000_000)  # a minute; a refusal is repeated after the time that it names


def query_embedder(settings: Settings) -> Client | None:
    """Make the client that embeds queries, or return None if no embedder is configured.

    Raises:
        InvalidConfiguration: the embedder is beyond the cluster without permission.
    """
    if not settings.embedder.url:
        return None
    return embedder_client(
        settings.embedder.url,
        settings.model,
        settings.embedder.api_key_file,
        options=settings.embedder_options,
        dimensions=settings.dimensions,
        query_egress=settings.may_leave_cluster,
        ca_file=settings.embedder.ca_file,
    )


@asynccontextmanager
async def document_embedder(settings: Settings, listener: OutageListener) -> AsyncIterator[Embedder]:
    """Open the configured embedder for workers, and close its connections at the end of the block.

    Raises:
        InvalidConfiguration: no embedder is configured, or it is beyond the cluster without permission.
    """
    if not settings.embedder.url:
        raise InvalidConfiguration("No embedder is configured.", "Set MEMORY_EMBEDDER_URL.")
    async with connector(settings, listener)(settings.embedder.url, settings.model) as embedder:
        yield embedder


@asynccontextmanager
async def guarded(settings: Settings, client: Client, listener: OutageListener) -> AsyncIterator[Embedder]:
    """Open a client, and close its connections at the end of the block.

    If texts leave the cluster, requests are paced and divided, and the rows of each are looked up just before it.
    """
    if not client.hosted:
        async with client:
            yield client
        return
    async with client, Session(settings.dsn(), name="memory-egress", listener=listener) as session:
        look_up = partial(look_up_sendable, name=settings.table)
        yield HostedEmbedder(client, _LIMITS, sendable=SendableRows(session.run, look_up))


def connector(settings: Settings, listener: OutageListener) -> Connect:
    """Return a function that opens the embedder at a URL that serves a model, for workers.

    The embedder gets the API key only at the host of the configured URL and at trusted hosts. At another address than
    the configured one there must be a memory-embedder.
    """

    def connect(url: str, model: str) -> AbstractAsyncContextManager[Embedder]:
        own = settings.embedder
        entitled = may_have_key(own.url or "", url, settings.trusted_hosts())
        configured = (url.rstrip("/"), model) == ((own.url or "").rstrip("/"), settings.model)
        client = embedder_client(
            url,
            model,
            own.api_key_file if entitled else None,
            options=settings.embedder_options if configured else OWN_OPTIONS,
            dimensions=settings.dimensions if configured and own.api is not EmbedderApi.MEMORY_INDEX else None,
            query_egress=settings.may_leave_cluster,
            ca_file=own.ca_file,
        )
        return guarded(settings, client, listener)

    return connect


async def look_up_sendable(connection: Connection, rows: Sequence[PendingRow], *, name: str) -> list[PendingRow]:
    """Return the rows of the table of this name whose text may be sent now."""
    return await still_shareable(connection, rows, table=await require_schema(connection, name))


class EmbedderDirectory:
    """Opens a client of the embedder that serves a model; the end of its `async with` block closes these clients.

    Args:
        configured: the client of the configured embedder.
        connect: opens the embedder at a URL that serves a model.
        model: the name of the configured embedder's model.
        url: the URL of the configured embedder. The database may name embedders in the same namespace.
        api: the API of the configured embedder.
        trusted_hosts: hosts outside that namespace that the database may name, too.
    """

    def __init__(
        self,
        configured: DocumentEmbedder,
        connect: Connect,
        *,
        model: str,
        url: str,
        api: EmbedderApi = EmbedderApi.MEMORY_INDEX,
        trusted_hosts: tuple[str, ...] = (),
    ) -> None:
        self.configured = configured
        self._api = api
        self.url = url.rstrip("/")
        self._model = model
        self._connect = connect
        self._trusted_hosts = trusted_hosts
        self._opened: dict[tuple[str, str], DocumentEmbedder] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def recorded_url(self) -> str | None:
        """The URL that the database records for the configured embedder; None unless it is a memory-embedder.

        Whoever follows an address of the database asks a memory-embedder there. A third-party embedder might take
        such a request for one of its own, put no prefixes before the texts, or send them out of the cluster.
        """
        return self.url if self._api is EmbedderApi.MEMORY_INDEX else None

    async def serving(self, model: RecordedModel) -> DocumentEmbedder:
        """Return an embedder that serves the model.

        Raises:
            ModelMismatch: no embedder of the model is known, or the database names an embedder whose address is not
                trusted.
        """
        url, fits = model.embedder_url, self._model == model.name
        near = url is not None and is_trusted_embedder_url(self.url, url, self._trusted_hosts)
        if fits and (url == self.url or not near):
            return self.configured
        if url is None:
            raise ModelMismatch(
                f"The vectors are of {model.name}; this process is set up for {self._model}.",
                "Set MEMORY_MODEL and MEMORY_EMBEDDER_URL to that model and its embedder.",
            )
        if not near:
            raise ModelMismatch(
                f"The database names an embedder of {model.name} that is no neighbour of the configured one.",
                "Set MEMORY_EMBEDDER_URL to it, or its host in MEMORY_EMBEDDER_TRUSTED_HOSTS.",
            )
        return await self._once(url, model.name, partial(self._connect, url, model.name))

    async def _once(
        self, url: str, model: str, connect: Callable[[], AbstractAsyncContextManager[DocumentEmbedder]]
    ) -> DocumentEmbedder:
        """Open an embedder unless one of this address and model is open already, and return the open one."""
        if (url, model) not in self._opened:
            self._opened[url, model] = await self._stack.enter_async_context(connect())
        return self._opened[url, model]


def directory_of(settings: Settings, configured: DocumentEmbedder, listener: OutageListener) -> EmbedderDirectory:
    """Make an EmbedderDirectory from the settings and the configured embedder."""
    return EmbedderDirectory(
        configured,
        connector(settings, listener),
        model=settings.model,
        url=settings.embedder.url or "",
        api=settings.embedder.api,
        trusted_hosts=settings.trusted_hosts(),
    )
