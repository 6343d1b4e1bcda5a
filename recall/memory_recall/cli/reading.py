"""Opens what commands need to recall: a connection pool, the configured embedder if any, and the recall."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from memory_recall.contrib.chat_client import ChatClient
from memory_recall.contrib.query_expansion import QueryExpansion
from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.external_client import ExternalEmbedder
from memory_recall.indexing.embedders import query_embedder
from memory_recall.postgres.connection import create_pool
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.search.recall import Recall
from memory_recall.settings import Settings

_DATABASE_SECONDS = 30.0  # nobody's prompt waits for a command
_EXPANSION_SECONDS = 30.0


@asynccontextmanager
async def opened_recall(
    settings: Settings,
    *,
    dense: bool,
    embedding_budget: float,
    connections: int = 1,
    expand_url: str | None = None,
    expand_model: str = "",
    expand_key_file: Path | None = None,
) -> AsyncIterator[tuple[Recall, EmbedderClient | ExternalEmbedder | None]]:
    """Open a recall and, if `dense` is set, the configured embedder; close both when the block ends.

    The block receives the recall and the embedder. The embedder is None if `dense` is not set or none is
    configured. With an `expand_url`, queries can be expanded by the language model there.

    Raises:
        InvalidConfiguration: queries may not be sent to the language model.
    """
    async with AsyncExitStack() as opened:
        pool = await create_pool(settings.dsn(), min_size=1, max_size=connections, application_name="memory-cli")
        opened.push_async_callback(pool.close)
        embedder = query_embedder(settings) if dense else None
        if embedder is not None:
            opened.push_async_callback(embedder.close)
        time_budget = max(embedding_budget, _EXPANSION_SECONDS) + _DATABASE_SECONDS
        options = RecallOptions(settings.table, embedding_budget=embedding_budget, time_budget=time_budget)
        recall: Recall = HybridRecall(pool, embedder, options)
        if expand_url is not None:
            model = ChatClient(expand_url, expand_model, expand_key_file, query_egress=settings.may_leave_cluster)
            recall = QueryExpansion(recall, await opened.enter_async_context(model), budget=_EXPANSION_SECONDS)
        opened.push_async_callback(recall.close)
        yield recall, embedder
