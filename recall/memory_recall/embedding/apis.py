"""The HTTP APIs of embedders: which there are, what their requests look like, and how a list of models is read.

The operator judges a list of models by the same functions as the workers. Therefore this module imports neither NumPy
nor httpx, and sends nothing.

Sources: the API references of OpenAI, Voyage AI and Cohere (v2); the OpenAPI description of text-embeddings-inference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from memory_recall.embedding.address_policy import is_beyond_cluster
from memory_recall.embedding.profiles import PROFILES
from memory_recall.errors import InvalidConfiguration

InputType = str  # "query" or "document"

_NEWEST = ":latest"  # the tag that Ollama adds to a model's name


class EmbedderApi(StrEnum):
    """The API of an embedder, by the make that defines it. `OPENAI` is also spoken by most inference servers."""

    MEMORY_INDEX = "MemoryIndex"
    OPENAI = "OpenAI"
    TEI = "TEI"
    VOYAGE = "Voyage"
    COHERE = "Cohere"


MODELS_PATHS: Mapping[EmbedderApi, str | None] = {
    EmbedderApi.MEMORY_INDEX: "/v1/models",
    EmbedderApi.OPENAI: "/v1/models",
    EmbedderApi.TEI: "/info",
    EmbedderApi.VOYAGE: None,
    EmbedderApi.COHERE: None,  # its list does not say what embeds
}
"""Where a server describes its models, if it does."""

PREFIXED_APIS = frozenset({EmbedderApi.OPENAI, EmbedderApi.TEI})
"""The APIs without types of inputs, so that the client puts the model's prefixes before texts."""

HOSTED_APIS = frozenset({EmbedderApi.VOYAGE, EmbedderApi.COHERE})
"""The APIs of hosted providers: who speaks one of them sends texts out of the cluster, wherever it runs itself."""


class NoListingError(Exception):
    """A server's answer is no list of models."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of models. `found` is what it says about the wanted model, or None if the server does not serve it."""

    names: tuple[str, ...]
    found: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class EmbedderOptions:
    """The API of an embedder, and what a client has to know to make requests to it.

    `served_as` is the model's name at the server, if it is another one than ours. The client puts the prefixes before
    queries and documents where the server does not know them; None means those of the model's profile, and none for a
    model without a profile. `batch` is the most texts of one request.

    Raises:
        InvalidConfiguration: a name or a prefix is given, and requests of this API have no place for it.
    """

    api: EmbedderApi = EmbedderApi.MEMORY_INDEX
    served_as: str | None = None
    query_prefix: str | None = None
    document_prefix: str | None = None
    batch: int = 32

    def __post_init__(self) -> None:
        """Refuse what would have no effect, since whoever gives it expects one."""
        if self.served_as is not None and self.api is EmbedderApi.MEMORY_INDEX:
            raise InvalidConfiguration(
                f"Another name of the model is given ({self.served_as}), which the API {self.api} does not have.",
                "Leave it out, or say which API the embedder has: MEMORY_EMBEDDER_API, or --api of memory swap.",
            )
        if self.api not in PREFIXED_APIS and (self.query_prefix, self.document_prefix) != (None, None):
            raise InvalidConfiguration(
                f"A prefix is given, and an embedder with the API {self.api} knows those of its model itself.",
                "Leave it out, or say which API the embedder has: MEMORY_EMBEDDER_API, or --api of memory swap.",
            )

    def leaves_cluster(self, url: str) -> bool:
        """Return whether texts that are sent to a URL in this way may leave the cluster."""
        return self.api in HOSTED_APIS or is_beyond_cluster(url)

    def name_of(self, model: str | None) -> str | None:
        """Return the name by which the server knows the model."""
        return self.served_as or model

    def request(
        self, model: str | None, texts: Sequence[str], input_type: InputType, dimensions: int | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Return the path and the JSON body of a request for the vectors of texts, with the API of a third party.

        `dimensions` is sent where an API lets the client choose among the lengths of a model's vectors. OpenAI's API is
        asked for no encoding, since some gateways refuse to be asked.
        """
        name = self.name_of(model)
        body: dict[str, Any]
        if self.api is EmbedderApi.VOYAGE:
            body = {"model": name, "input": list(texts), "input_type": input_type, "truncation": True}
            body |= {"encoding_format": "base64"} | ({"output_dimension": dimensions} if dimensions else {})
            return "/v1/embeddings", body
        if self.api is EmbedderApi.COHERE:
            body = {"model": name, "texts": list(texts), "input_type": f"search_{input_type}", "truncate": "END"}
            body |= {"embedding_types": ["float"]} | ({"output_dimension": dimensions} if dimensions else {})
            return "/v2/embed", body
        prefixed = [self._prefix(model, input_type) + text for text in texts]
        if self.api is EmbedderApi.TEI:
            return "/embed", {"inputs": prefixed, "truncate": True, "normalize": True}
        return "/v1/embeddings", {"model": name, "input": prefixed}

    def in_openai_form(self, payload: Any) -> dict[str, Any]:  # noqa: ANN401  (whatever the server sent)
        """Return an answer with vectors in the form of OpenAI's.

        Raises:
            KeyError, TypeError: the answer has no vectors where the API puts them.
        """
        if self.api in {EmbedderApi.TEI, EmbedderApi.COHERE}:
            vectors = payload if self.api is EmbedderApi.TEI else payload["embeddings"]["float"]
            if not isinstance(vectors, list):
                raise TypeError
            return {"data": [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]}
        if not isinstance(payload, dict):
            raise TypeError
        return payload

    def listing(self, payload: Any, model: str) -> Listing:  # noqa: ANN401  (whatever the server sent)
        """Return what a server's answer to a request for its models says about a model.

        Raises:
            NoListingError: the answer is no list of models.
        """
        try:
            if self.api is EmbedderApi.TEI:
                return self._of_tei(payload, model)
            cards = {str(card["id"]): card for card in payload["data"] if isinstance(card, dict)}
        except (KeyError, TypeError, AttributeError):
            raise NoListingError from None
        wanted = str(self.name_of(model))
        return Listing(tuple(sorted(cards)), cards.get(wanted) or cards.get(wanted + _NEWEST))

    def _prefix(self, model: str | None, input_type: InputType) -> str:
        profile = PROFILES.get(model or "")
        if input_type == "query":
            given, known = self.query_prefix, profile.query_prefix if profile else ""
        else:
            given, known = self.document_prefix, profile.document_prefix if profile else ""
        return known if given is None else given

    def _of_tei(self, payload: Mapping[str, Any], model: str) -> Listing:
        """Read the description of the one model that text-embeddings-inference serves, under its repository's name.

        Without `served_as`, the part of that name after the organisation must be the model's name.
        """
        served = str(payload["model_id"])
        fits = served == self.served_as if self.served_as else served.rstrip("/").rpartition("/")[2] == model
        return Listing((served,), payload if fits else None)


OWN_OPTIONS = EmbedderOptions()
"""The options of our own embedding service."""
