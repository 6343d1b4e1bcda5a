"""Opens the embedders of both models of a swap; each is an embedder of our own or the hosted provider."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from memory_recall.embedding.address_policy import is_trusted_embedder_url, may_have_key
from memory_recall.embedding.apis import OWN_OPTIONS, EmbedderOptions
from memory_recall.embedding.external_client import embedder_client
from memory_recall.embedding.served_model import ServedModel
from memory_recall.errors import EmbedderUnavailable, InvalidInput
from memory_recall.indexing.embedders import Connect, Embedder, connector, guarded, hosted_embedder
from memory_recall.indexing.hosted_embedder import HostedEmbedder
from memory_recall.indexing.progress import LogProgress, WorkerMetrics
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.settings import Settings


@dataclass(frozen=True)
class NextEmbedder:
    """Where the next model is served: at `url` by an embedder of our own, or by the hosted provider if `url` is None.

    A hosted provider's model has vectors of several lengths, so `dimensions` then says which are wanted; elsewhere it
    is compared with those that the embedder yields. `api_key_file` holds the API key for the host of `url`, which gets
    no other; None sends none there. `options` are those of the embedder at `url`.
    """

    model: str
    url: str | None
    dimensions: int | None = None
    api_key_file: Path | None = None
    options: EmbedderOptions = OWN_OPTIONS

    def connect(self, settings: Settings) -> AbstractAsyncContextManager[Embedder]:
        """Open a client of the embedder.

        Raises:
            InvalidConfiguration: the embedder is beyond the cluster without permission, or the hosted provider is not
                allowed, or has no API key, or the dimensions are missing.
        """
        if self.url is None:
            return _hosted(settings, self.model, self.dimensions)
        client = embedder_client(
            self.url,
            self.model,
            self.api_key_file,
            options=self.options,
            dimensions=self.dimensions,
            query_egress=settings.may_leave_cluster,
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


@asynccontextmanager
async def _hosted(settings: Settings, model: str, dimensions: int | None) -> AsyncIterator[HostedEmbedder]:
    async with hosted_embedder(settings, model, dimensions, _listener()) as client:
        yield client


def _listener() -> LogProgress:
    return LogProgress(WorkerMetrics(), worker="swap")


def _is_hosted(settings: Settings, active: RecordedModel) -> bool:
    """Return whether the hosted provider serves the active model; no address is recorded for such a model."""
    if settings.model == active.name:
        return settings.provider != "local"
    return active.embedder_url is None and settings.hosted.api_key_file is not None


@asynccontextmanager
async def active_embedder(
    settings: Settings, following: NextEmbedder, active: RecordedModel
) -> AsyncIterator[Embedder]:
    """Open a client of the active model's embedder, with the configured API key for the configured host.

    The hosted provider is used if it serves the active model. Otherwise the recorded address of the embedder is used if
    it is trusted, and else the configured address, if it is configured for the active model.

    Raises:
        EmbedderUnavailable: neither address can be used.
        InvalidConfiguration: the hosted provider is not allowed, or has no API key.
    """
    if _is_hosted(settings, active):
        async with _hosted(settings, active.name, active.dimensions) as hosted:
            yield hosted
        return
    url, hosts = active.embedder_url, settings.trusted_hosts()
    if url is None or not any(
        is_trusted_embedder_url(near, url, hosts) for near in (following.url or "", settings.embedder.url or "")
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


def connector_of(settings: Settings, following: NextEmbedder) -> Connect:
    """Return a function that opens the embedder at a URL that serves a model.

    The host of the next model's embedder gets the API key of that embedder, and other hosts get the configured key or
    none, as `connector` decides.
    """

    def connect(url: str, model: str) -> AbstractAsyncContextManager[Embedder]:
        if following.url is not None and may_have_key(following.url, url):
            same = (url.rstrip("/"), model) == (following.url.rstrip("/"), following.model)
            return replace(following, model=model, url=url, options=following.options if same else OWN_OPTIONS).connect(
                settings
            )
        return connector(settings, _listener())(url, model)

    return connect
