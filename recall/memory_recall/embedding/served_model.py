"""Facts about embedders for code that sends no request: the model that one serves, and the hosted provider's address.

They are apart from the clients, which import NumPy and httpx, so that the operator loads neither.
"""

from dataclasses import dataclass

VOYAGE_URL = "https://api.voyageai.com"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as its embedder describes it. `digest` identifies the weights; it is None for a hosted model."""

    name: str
    dimensions: int
    digest: str | None = None
    max_tokens: int | None = None
    pooling: str | None = None
