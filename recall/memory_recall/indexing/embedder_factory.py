"""The embedder that the settings name: our own service, or a hosted provider once its use has been accepted."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.voyage import VOYAGE_URL, VoyageClient
from memory_recall.errors import InvalidConfiguration
from memory_recall.indexing.document_embedder import DescribedEmbedder
from memory_recall.indexing.egress_sql import Screen
from memory_recall.indexing.embedder_directory import EmbedderDirectory
from memory_recall.indexing.hosted_embedder import HostedEmbedder, RateLimits
from memory_recall.indexing.waiting import OutageListener
from memory_recall.indexing.worker_session import Session
from memory_recall.settings import Settings


def query_embedder(settings: Settings) -> EmbedderClient | VoyageClient | None:
    """The client for queries; None where no embedder is configured.

    Raises:
        InvalidConfiguration: the hosted provider is named, but not what it needs.
    """
    if settings.provider == "voyage":
        return _voyage(settings)
    if not settings.embedder_url:
        return None
    return EmbedderClient(settings.embedder_url, settings.model, _key(settings), dimensions=settings.dimensions)


@asynccontextmanager
async def document_embedder(settings: Settings, listener: OutageListener) -> AsyncIterator[DescribedEmbedder]:
    """The embedder for workers; its connections end with the block.

    Raises:
        InvalidConfiguration: none is configured, or the hosted provider is named but not what it needs.
    """
    if settings.provider == "voyage":
        session = Session(
            settings.dsn(), name="memory-egress", listener=listener, outage_timeout=settings.outage_timeout
        )
        limits = RateLimits(settings.hosted_requests_per_minute, settings.hosted_tokens_per_minute)
        async with _voyage(settings) as client, session:
            yield HostedEmbedder(client, limits, screen=Screen(session, settings.table))
        return
    if not settings.embedder_url:
        raise InvalidConfiguration("No embedder is configured.", "Set MEMORY_EMBEDDER_URL.")
    async with EmbedderClient(
        settings.embedder_url, settings.model, _key(settings), timeout=settings.embedder_timeout
    ) as client:
        yield client


def connector(settings: Settings) -> Callable[[str, str], EmbedderClient]:
    """Makes clients of our own service for a URL and a model's name, with the settings' key and patience."""
    return lambda url, model: EmbedderClient(url, model, _key(settings), timeout=settings.embedder_timeout)


def directory_of(settings: Settings, configured: DescribedEmbedder) -> EmbedderDirectory:
    """The configured embedder, and the way to others that the database names."""
    return EmbedderDirectory(
        configured,
        connector(settings),
        model=settings.model,
        url=settings.embedder_url if settings.provider == "local" else None,
        trusted_hosts=settings.trusted_hosts(),
    )


def _key(settings: Settings) -> str | None:
    return settings.embedder_api_key.get_secret_value() if settings.embedder_api_key else None


def _voyage(settings: Settings) -> VoyageClient:
    if settings.query_egress != "allowed":
        raise InvalidConfiguration(
            "Provider voyage sends texts of memories and queries to a hosted service, which has not been allowed.",
            "Set MEMORY_QUERY_EGRESS=allowed (spec.embedding.queryEgress: Allowed), or use provider local.",
        )
    if settings.dimensions is None:
        raise InvalidConfiguration("A hosted model has vectors of several lengths.", "Set MEMORY_DIMENSIONS.")
    key = _key(settings)
    if key is None:
        raise InvalidConfiguration("Provider voyage needs an API key.", "Set MEMORY_EMBEDDER_API_KEY.")
    return VoyageClient(settings.model, settings.dimensions, key, base_url=settings.embedder_url or VOYAGE_URL)
