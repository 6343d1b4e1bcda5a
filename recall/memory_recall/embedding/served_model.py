"""Facts about embedders for code that sends no request: the model that one serves, and the hosted provider's address.

They are apart from the clients, which import NumPy and httpx, so that the operator loads neither.
"""

from dataclasses import dataclass

VOYAGE_URL = "https://api.voyageai.com"
_VOYAGE_PREFIX = "voyage-"


def is_hosted_model(name: str) -> bool:
    """Return whether a model's name is one of a hosted provider's, since no profile and no file of it exist."""
    return name.startswith(_VOYAGE_PREFIX)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as its embedder describes it. `digest` identifies the weights; it is None for a hosted model."""

    name: str
    dimensions: int
    digest: str | None = None
    max_tokens: int | None = None
    pooling: str | None = None
