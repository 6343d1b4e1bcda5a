"""Opens the embedders of both models of a swap; each is our own or a third-party one."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from memory_recall.embedding.address_policy import is_trusted_embedder_url, may_have_key
from memory_recall.embedding.apis import OWN_OPTIONS, EmbedderOptions
from memory_recall.embedding.external_client import embedder_client
from memory_recall.embedding.served_model import ServedModel
from memory_recall.errors import EmbedderUnavailable, InvalidInput
from memory_recall.indexing.embedders import Connect, Embedder, EmbedderDirectory, connector, guarded
from memory_recall.indexing.progress import LogProgress, WorkerMetrics
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.settings import Settings


@dataclass(frozen=True)
class NextEmbedder:
    """Where the next model is served: at `url`, by an embedder with these `options`.

    A hosted model may have vectors of several lengths, so `dimensions` then says which are wanted; elsewhere it is
    compared with those that the embedder yields. `api_key_file` holds the API key for the host of `url`, which gets no
    other; None sends none there.
    """

    model: str
    url: str
    dimensions: int | None = None
    api_key_file: Path | None = None
    options: EmbedderOptions = OWN_OPTIONS

    def connect(self, settings: Settings) -> AbstractAsyncContextManager[Embedder]:
        """Open a client of the embedder.

        Raises:
            InvalidConfiguration: the embedder is beyond the cluster without permission.
        """
        client = embedder_client(
            self.url,
            self.model,
            self.api_key_file,
            options=self.options,
            dimensions=self.dimensions,
            query_egress=settings.may_leave_cluster,
            ca_file=settings.embedder.ca_file,
        )
        return guarded(settings, client, _listener())


async def target_of(client: Embedder, following: NextEmbedder) -> ServedModel:
    """Return the next model as its embedder describes it.

    Raises:
        InvalidInput: the embedder serves another model.
    """
    served = await client.model_info()
    if served.name != following.model:
        message = f"The embedder at {following.url} serves {served.name}, not {following.model}."
        raise InvalidInput(message, "Name that model.")
    return served


def _listener() -> LogProgress:
    return LogProgress(WorkerMetrics(), worker="swap")


@asynccontextmanager
async def active_embedder(
    settings: Settings, following: NextEmbedder, active: RecordedModel
) -> AsyncIterator[Embedder]:
    """Open a client of the active model's embedder, with the configured API key for the configured host.

    The recorded address of the embedder is used if it is trusted, and else the configured address, if it is configured
    for the active model.

    Raises:
        EmbedderUnavailable: neither address can be used.
        InvalidConfiguration: the embedder is beyond the cluster without permission.
    """
    url, hosts = active.embedder_url, settings.trusted_hosts()
    if url is None or not any(
        is_trusted_embedder_url(near, url, hosts) for near in (following.url, settings.embedder.url or "")
    ):
        url = settings.embedder.url if settings.model == active.name else None
    if url is None:
        raise EmbedderUnavailable(
            f"It is not known where the active model {active.name} is served.",
            "Set MEMORY_MODEL and MEMORY_EMBEDDER_URL to it.",
        )
    configured = settings.embedder.url or ""
    connect = connector(settings, _listener()) if may_have_key(configured, url) else connector_of(settings, following)
    async with connect(url, active.name) as client:
        yield client


def directory_of(settings: Settings, following: NextEmbedder, client: Embedder) -> EmbedderDirectory:
    """Make an EmbedderDirectory whose configured embedder is that of the next model, of which `client` is a client."""
    return EmbedderDirectory(
        client,
        connector_of(settings, following),
        model=following.model,
        url=following.url,
        api=following.options.api,
        trusted_hosts=settings.trusted_hosts(),
    )


def connector_of(settings: Settings, following: NextEmbedder) -> Connect:
    """Return a function that opens the embedder at a URL that serves a model.

    The host of the next model's embedder gets the API key of that embedder, and other hosts get the configured key or
    none, as `connector` decides.
    """

    def connect(url: str, model: str) -> AbstractAsyncContextManager[Embedder]:
        if may_have_key(following.url, url):
            same = (url.rstrip("/"), model) == (following.url.rstrip("/"), following.model)
            return replace(following, model=model, url=url, options=following.options if same else OWN_OPTIONS).connect(
                settings
            )
        return connector(settings, _listener())(url, model)

    return connect
