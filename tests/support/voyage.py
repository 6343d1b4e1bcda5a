"""A client of the hosted provider Voyage AI, with the consent that tests give it."""

from typing import Any

from memory_recall import EmbedderApi, EmbedderOptions, ExternalEmbedder
from memory_recall.embedding.api_key import ApiKey

VOYAGE_URL = "https://api.voyageai.com"


def voyage_client(
    model: str, dimensions: int, api_key: ApiKey, *, base_url: str = VOYAGE_URL, batch: int = 128, **options: Any
) -> ExternalEmbedder:
    """Return a client that may send texts to the provider, at most `batch` in a request."""
    asked = EmbedderOptions(EmbedderApi.VOYAGE, batch=batch)
    return ExternalEmbedder(
        base_url, model, api_key, options=asked, dimensions=dimensions, query_egress=True, **options
    )
