"""What is known about each embedding model: the facts that a weights file does not carry, or that it must agree with.

A profile is the single place of a model's prefixes: callers say what a text is (query or document), never how to mark
it, so a query and a document can only ever meet in the same vector space. The library keeps its own copy of this
table (neither side imports the other); a contract test holds the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from memory_embedder.errors import EmbedderError, ErrorKind


class Pooling(StrEnum):
    """How token states become one vector."""

    MEAN = "mean"
    CLS = "cls"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The published facts of one embedding model."""

    name: str
    dimensions: int
    max_tokens: int
    pooling: Pooling
    query_prefix: str
    document_prefix: str
    licence: str
    default_file: str
    file_digest: str | None = None  # of the file that `convert` or `default-model` writes, where we have made one


_BGE_QUERY = "Represent this sentence for searching relevant passages: "
_QWEN_QUERY = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"

PROFILES: dict[str, ModelProfile] = {
    profile.name: profile
    for profile in (
        ModelProfile(
            name="all-MiniLM-L6-v2",
            dimensions=384,
            max_tokens=256,  # its publisher truncates here, although its positions reach 512
            pooling=Pooling.MEAN,
            query_prefix="",
            document_prefix="",
            licence="Apache-2.0",
            default_file="all-MiniLM-L6-v2.gguf",
            file_digest="sha256:8a1fd21a00cfca58e00d5717a8932e58f05237f392e4ff25ac78a8bd0796b4b8",
        ),
        ModelProfile(
            name="bge-small-en-v1.5",
            dimensions=384,
            max_tokens=512,
            pooling=Pooling.CLS,
            query_prefix=_BGE_QUERY,
            document_prefix="",
            licence="MIT",
            default_file="bge-small-en-v1.5.gguf",
        ),
        ModelProfile(
            name="bge-large-en-v1.5",
            dimensions=1024,
            max_tokens=512,
            pooling=Pooling.CLS,
            query_prefix=_BGE_QUERY,
            document_prefix="",
            licence="MIT",
            default_file="bge-large-en-v1.5.gguf",
        ),
        ModelProfile(
            name="nomic-embed-text-v1.5",
            dimensions=768,
            max_tokens=2048,
            pooling=Pooling.MEAN,
            query_prefix="search_query: ",
            document_prefix="search_document: ",
            licence="Apache-2.0",
            default_file="nomic-embed-text-v1.5.gguf",
        ),
        ModelProfile(
            name="Qwen3-Embedding-0.6B",
            dimensions=1024,
            max_tokens=8192,  # trained to 32768; a longer window costs 115 KB of cache a token and context
            pooling=Pooling.LAST,
            query_prefix=_QWEN_QUERY,
            document_prefix="",
            licence="Apache-2.0",
            default_file="Qwen3-Embedding-0.6B.gguf",
        ),
    )
}


def find_profile(name: str) -> ModelProfile:
    """The profile of a known model, or an error that lists the known ones."""
    profile = PROFILES.get(name)
    if profile is None:
        known = ", ".join(sorted(PROFILES))
        raise EmbedderError(
            ErrorKind.CONFIGURATION,
            f"No profile is known for model '{name}'. Known: {known}. For any other model use --model custom with "
            "--served-name, --pooling, --max-tokens and the prefixes.",
        )
    return profile
