"""The catalogue of embedding models that are known by name.

A profile holds everything that a model's vectors depend on: the dimensions, the pooling of tokens, and the prefixes of
queries and documents. The embedder's package holds a copy of the catalogue, because the two packages share no code; a
contract test keeps both equal.
"""

from dataclasses import dataclass
from typing import Literal

from memory_recall.errors import InvalidConfiguration

Pooling = Literal["mean", "cls", "last"]

_BGE_QUERY = "Represent this sentence for searching relevant passages: "
_QWEN_QUERY = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


@dataclass(frozen=True)
class ModelProfile:
    """An embedding model as its publisher or its user describes it. `max_tokens` and `pooling` are None if unknown."""

    name: str
    dimensions: int
    max_tokens: int | None = None
    pooling: Pooling | None = None
    query_prefix: str = ""
    document_prefix: str = ""
    licence: str = ""


PROFILES: dict[str, ModelProfile] = {
    profile.name: profile
    for profile in (
        ModelProfile("all-MiniLM-L6-v2", 384, 256, "mean", "", "", "Apache-2.0"),
        ModelProfile("bge-small-en-v1.5", 384, 512, "cls", _BGE_QUERY, "", "MIT"),
        ModelProfile("bge-large-en-v1.5", 1024, 512, "cls", _BGE_QUERY, "", "MIT"),
        ModelProfile("nomic-embed-text-v1.5", 768, 2048, "mean", "search_query: ", "search_document: ", "Apache-2.0"),
        ModelProfile("Qwen3-Embedding-0.6B", 1024, 8192, "last", _QWEN_QUERY, "", "Apache-2.0"),
    )
}


def profile(name: str) -> ModelProfile:
    """Return the profile of the model with this name.

    Raises:
        InvalidConfiguration: the catalogue has no such model.
    """
    try:
        return PROFILES[name]
    except KeyError:
        known = ", ".join(sorted(PROFILES))
        raise InvalidConfiguration(f"There is no model profile {name!r}.", f"Use one of: {known}; or custom.") from None
