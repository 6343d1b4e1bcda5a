"""Profiles of the known models: facts that a model file lacks, and facts that a model file must match.

A model's prefixes are defined only in its profile. Callers say whether a text is a query or a document and never send a
prefix, so that queries and documents of a model always get the prefixes that make their vectors comparable. The library
`memory_recall` keeps its own copy of this table, since neither package imports the other; a contract test checks that
the two are equal.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from enum import StrEnum

from memory_embedder.errors import configuration_error


class Pooling(StrEnum):
    """How the states of a text's tokens are combined into one vector, or with `RANK` into the score of a reranker."""

    MEAN = "mean"
    CLS = "cls"
    LAST = "last"
    RANK = "rank"


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The facts that the publisher of a model states about it; the only dimension of a reranker is its score.

    `languages` is for people. `scripts` are the Unicode scripts of these languages by their names, such as "Latin" or
    "Cyrillic": the vectors of texts in other scripts mean little. It is None where no script is known to be beyond the
    model, as for a multilingual model or one that only its user describes.

    `least_dimensions` is given where the model was trained so that the beginnings of its vectors are vectors, too
    (Matryoshka representation learning, arXiv 2205.13147): they may be cut to this number or more. `full_dimensions` is
    then the number that the model itself yields, or None where nothing is cut. With `normalizes_cut`, a vector is
    brought to mean 0 and variance 1 before it is cut, as its publisher says.
    """

    name: str
    dimensions: int
    max_tokens: int
    pooling: Pooling
    query_prefix: str = ""
    document_prefix: str = ""
    licence: str = "unknown"
    languages: str = "unknown"
    scripts: tuple[str, ...] | None = None
    least_dimensions: int | None = None
    file_digest: str | None = None  # of the file in F16 that one of the project's make targets writes
    normalizes_cut: bool = False
    full_dimensions: int | None = None

    @property
    def width(self) -> int:
        """The number of dimensions that the model itself yields."""
        return self.full_dimensions or self.dimensions

    def cut_to(self, dimensions: int) -> "ModelProfile":
        """Return the profile with vectors of this many dimensions.

        Raises:
            EmbedderError: the model yields another number, and was not trained to be cut to this one.
        """
        if dimensions == self.dimensions:
            return self
        least = self.least_dimensions
        if least is None or not least <= dimensions < self.dimensions:
            fewer = f", or any number from {least} on" if least is not None else ""
            raise configuration_error(
                f"--dimensions {dimensions} was asked for but {self.name} yields {self.dimensions}{fewer}; "
                "declare what the model yields.",
            )
        return replace(self, dimensions=dimensions, full_dimensions=self.dimensions)


_BGE_QUERY = "Represent this sentence for searching relevant passages: "
_QWEN_QUERY = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"

DEFAULT_MODEL = "all-MiniLM-L6-v2"

PROFILES: dict[str, ModelProfile] = {
    profile.name: profile
    for profile in (
        ModelProfile(
            name=DEFAULT_MODEL,
            dimensions=384,
            max_tokens=256,  # its publisher truncates here, although its positions reach 512
            pooling=Pooling.MEAN,
            licence="Apache-2.0",
            languages="English",
            scripts=("Latin",),
            file_digest="sha256:8a1fd21a00cfca58e00d5717a8932e58f05237f392e4ff25ac78a8bd0796b4b8",
        ),
        ModelProfile(
            name="bge-small-en-v1.5",
            dimensions=384,
            max_tokens=512,
            pooling=Pooling.CLS,
            query_prefix=_BGE_QUERY,
            licence="MIT",
            languages="English",
            scripts=("Latin",),
            file_digest="sha256:d86b199f77433ac193c65fe6984d41052d3e2f2415a61e21bb35a4ad16bc69e1",
        ),
        ModelProfile(
            name="bge-large-en-v1.5",
            dimensions=1024,
            max_tokens=512,
            pooling=Pooling.CLS,
            query_prefix=_BGE_QUERY,
            licence="MIT",
            languages="English",
            scripts=("Latin",),
        ),
        ModelProfile(
            name="multilingual-e5-small",
            dimensions=384,
            max_tokens=512,
            pooling=Pooling.MEAN,
            query_prefix="query: ",
            document_prefix="passage: ",
            licence="MIT",
            languages="100 languages",
            file_digest="sha256:54180288dc88b360299eb9cd879b204d9a95effabd34f6bea8aad0454651a0b3",
        ),
        ModelProfile(
            name="nomic-embed-text-v1.5",
            dimensions=768,
            max_tokens=2048,
            pooling=Pooling.MEAN,
            query_prefix="search_query: ",
            document_prefix="search_document: ",
            licence="Apache-2.0",
            languages="English",
            scripts=("Latin",),
            least_dimensions=64,
            normalizes_cut=True,
        ),
        ModelProfile(
            name="Qwen3-Embedding-0.6B",
            dimensions=1024,
            max_tokens=8192,  # trained to 32768; a longer window costs 115 KB of cache a token and context
            pooling=Pooling.LAST,
            query_prefix=_QWEN_QUERY,
            licence="Apache-2.0",
            languages="over 100 languages",
            least_dimensions=32,
        ),
    )
}

# Both are XLM-RoBERTa networks, so they need no token types, which llama.cpp does not compute (see `check_reranker`).
RERANKERS: dict[str, ModelProfile] = {
    profile.name: profile
    for profile in (
        ModelProfile(
            "bge-reranker-base",
            dimensions=1,
            max_tokens=512,
            pooling=Pooling.RANK,
            licence="MIT",
            languages="English and Chinese",
            scripts=("Latin", "Han"),
        ),
        ModelProfile(
            "bge-reranker-v2-m3",
            dimensions=1,
            max_tokens=512,  # trained to 8192, but the time of a pair grows with its length
            pooling=Pooling.RANK,
            licence="Apache-2.0",
            languages="over 100 languages",
        ),
    )
}


def served_digest(profile: ModelProfile, file_digest: str) -> str:
    """Return the digest of a model as it is served, which models share whose vectors can be compared.

    It is that of the file, `sha256:<64 hex digits>`. Unless the catalogue has a model of this name with this pooling
    and these prefixes, `+` and 16 hex digits of a digest of pooling and prefixes follow, because another prefix or
    pooling makes other vectors of the same file.
    """
    published = PROFILES.get(profile.name)
    used = [profile.pooling, profile.query_prefix, profile.document_prefix]
    if published and used == [published.pooling, published.query_prefix, published.document_prefix]:
        return file_digest
    return f"{file_digest}+{hashlib.sha256(json.dumps(used).encode()).hexdigest()[:16]}"


def known_as(stated: str) -> ModelProfile | None:
    """Return the profile of the known model that a file states as its name, or None if it states another.

    Publishers and converters write one name in several ways: `sentence-transformers/all-MiniLM-L6-v2` and `All MiniLM
    L6 v2` are the same.
    """
    return next((one for one in PROFILES.values() if plain_name(one.name) == plain_name(stated)), None)


def plain_name(name: str) -> str:
    """Return a model's name without its owner, capitals and everything but letters and digits."""
    return "".join(sign for sign in name.rpartition("/")[2].lower() if sign.isalnum())


def find_profile(name: str) -> ModelProfile:
    """Return the profile of a known model.

    Raises:
        EmbedderError: the name is not known; the message lists the known names and the option that any other model
            needs.
    """
    profile = PROFILES.get(name)
    if profile is None:
        raise configuration_error(
            f"No profile is known for model '{name}'. Known: {', '.join(sorted(PROFILES))}. `serve` takes any other "
            "model with --model-file.",
        )
    return profile
