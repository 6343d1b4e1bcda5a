"""Facts about embedders that need no request: the type of a served model, and the hosted provider's address.

This module is separate from the clients, which import NumPy and httpx, so that the operator loads neither library.
"""

from dataclasses import dataclass

VOYAGE_URL = "https://api.voyageai.com"
_VOYAGE_PREFIX = "voyage-"


def is_hosted_model(name: str) -> bool:
    """Return whether the name is that of a hosted provider's model; such a model has neither a profile nor a file."""
    return name.startswith(_VOYAGE_PREFIX)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as its embedder describes it.

    `digest` identifies the weights, or is the canary of a model whose embedder names no file (`embedding.canary`). It
    is None for a hosted model.
    """

    name: str
    dimensions: int
    digest: str | None = None
    max_tokens: int | None = None
    pooling: str | None = None
