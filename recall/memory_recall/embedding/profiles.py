"""The embedding models that are known by name.

A profile is everything that has to be right for a model's vectors to mean anything: how many dimensions, how tokens
are pooled, and what is written before queries and documents. The embedder holds its own copy, because the two share no
code; a contract test keeps both equal.
"""

from dataclasses import dataclass
from typing import Literal

from memory_recall.errors import InvalidConfiguration

Pooling = Literal["mean", "cls", "last"]

_BGE_QUERY = "Represent this sentence for searching relevant passages: "
_QWEN_QUERY = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


@dataclass(frozen=True)
class ModelProfile:
    """One embedding model, as its publisher describes it."""

    name: str
    dimensions: int
    max_tokens: int
    pooling: Pooling
    query_prefix: str
    document_prefix: str
    licence: str


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
    """The profile of that name.

    Raises:
        InvalidConfiguration: nobody has described such a model.
    """
    try:
        return PROFILES[name]
    except KeyError:
        known = ", ".join(sorted(PROFILES))
        raise InvalidConfiguration(f"There is no model profile {name!r}.", f"Use one of: {known}; or custom.") from None
