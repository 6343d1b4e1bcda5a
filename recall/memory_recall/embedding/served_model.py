"""What the schema and the operator know of embedders, apart from their clients, which import NumPy and httpx."""

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
