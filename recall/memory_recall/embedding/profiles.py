"""The catalogue of embedding models that are known by name.

A profile holds everything that a model's vectors depend on: the dimensions, the pooling of tokens, and the prefixes of
queries and documents. It also says which languages the model was made for. The embedder's package holds a copy of the
catalogue, because the two packages share no code; a contract test keeps both equal.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

from memory_recall.errors import InvalidConfiguration

Pooling = Literal["mean", "cls", "last"]

_BGE_QUERY = "Represent this sentence for searching relevant passages: "
_QWEN_QUERY = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


@dataclass(frozen=True)
class ModelProfile:
    """An embedding model as its publisher or its user describes it. `max_tokens` and `pooling` are None if unknown.

    `languages` is for people. `scripts` are the Unicode scripts of these languages by their names, such as "Latin" or
    "Cyrillic": the vectors of texts in other scripts mean little. It is None where no script is known to be beyond the
    model, as for a multilingual model or one that only its user describes. `least_dimensions` is given where the model
    was trained so that its vectors may be cut to this number of dimensions or more (Matryoshka).
    """

    name: str
    dimensions: int
    max_tokens: int | None = None
    pooling: Pooling | None = None
    query_prefix: str = ""
    document_prefix: str = ""
    licence: str = ""
    languages: str = "unknown"
    scripts: tuple[str, ...] | None = None
    least_dimensions: int | None = None

    def yields(self, dimensions: int) -> bool:
        """Return whether the model has vectors of this many dimensions, perhaps cut ones."""
        least = self.dimensions if self.least_dimensions is None else self.least_dimensions
        return least <= dimensions <= self.dimensions

    @property
    def choices(self) -> str:
        """The numbers of dimensions that the model yields, as a part of a sentence."""
        fewer = f", or any number from {self.least_dimensions} on" if self.least_dimensions is not None else ""
        return f"{self.dimensions}{fewer}"


_NOMIC = ("search_query: ", "search_document: ")
_QWEN = ("Apache-2.0", "over 100 languages")
_ENGLISH = ("English", ("Latin",))

PROFILES: dict[str, ModelProfile] = {
    profile.name: profile
    for profile in (
        ModelProfile("all-MiniLM-L6-v2", 384, 256, "mean", "", "", "Apache-2.0", *_ENGLISH),
        ModelProfile("bge-small-en-v1.5", 384, 512, "cls", _BGE_QUERY, "", "MIT", *_ENGLISH),
        ModelProfile("bge-large-en-v1.5", 1024, 512, "cls", _BGE_QUERY, "", "MIT", *_ENGLISH),
        ModelProfile("multilingual-e5-small", 384, 512, "mean", "query: ", "passage: ", "MIT", "100 languages"),
        ModelProfile("nomic-embed-text-v1.5", 768, 2048, "mean", *_NOMIC, "Apache-2.0", *_ENGLISH, least_dimensions=64),
        ModelProfile("Qwen3-Embedding-0.6B", 1024, 8192, "last", _QWEN_QUERY, "", *_QWEN, least_dimensions=32),
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


def served_digest(file_digest: str, model: str, pooling: str | None, query_prefix: str, document_prefix: str) -> str:
    """Return the digest by which a memory-embedder names a file that it serves as this model, in this way.

    Unless the catalogue has a model of this name with this pooling and these prefixes, the digest ends in one of them,
    because another prefix or pooling makes other vectors of the same file. Models whose vectors can be compared have
    the same digest.
    """
    known, used = PROFILES.get(model), [pooling, query_prefix, document_prefix]
    if known and used == [known.pooling, known.query_prefix, known.document_prefix]:
        return file_digest
    return f"{file_digest}+{hashlib.sha256(json.dumps(used).encode()).hexdigest()[:16]}"
