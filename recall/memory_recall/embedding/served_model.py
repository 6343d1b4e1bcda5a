"""The model that an embedder serves; separate from the clients, so that the operator loads neither NumPy nor httpx."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as its embedder describes it.

    `digest` identifies the weights and how they are served (`embedding.profiles.served_digest`), or is the canary of a
    model whose embedder names no file (`embedding.canary`). It is None for a hosted model.
    """

    name: str
    dimensions: int
    digest: str | None = None
    max_tokens: int | None = None
    pooling: str | None = None
