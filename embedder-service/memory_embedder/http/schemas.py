"""Request and response bodies, compatible with OpenAI's embeddings API and with Cohere's and TEI's rerank APIs.

TEI is Hugging Face's text-embeddings-inference. Fields that say the same in the APIs of Cohere and of NVIDIA's NIM take
their words, too, since their clients send them unasked.

The messages for invalid requests are written here, because pydantic's messages quote the input, which is private.
Validation ends at the first list item that is not a text: an error for each item would cost more than the request.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.http.bodies import with_whole_characters

MOST_TEXTS = 2048  # of one request
MOST_RERANKED = 256
Text = Annotated[str, StringConstraints(strict=True)]
Truncate = Annotated[bool, Field(strict=True)] | Literal["NONE", "END"]
Texts = Annotated[list[Text], Field(max_length=MOST_TEXTS, fail_fast=True)]


class Document(BaseModel):
    """A text in an object of its own, as some clients send it. Other fields of it are ignored."""

    model_config = ConfigDict(extra="ignore")

    text: Text


RerankedTexts = Annotated[list[Text | Document], Field(max_length=MOST_RERANKED, fail_fast=True)]
Request = TypeVar("Request", bound=BaseModel)

_SERVED_DIGEST = (
    "sha256:<hex> of the model file that makes the vectors, followed by `+` and 16 hex digits of a digest of pooling "
    "and prefixes unless they are those of the known model of this name. Vectors can be compared where it is the same."
)
_EXAMPLE_ONE: dict[str, JsonValue] = {
    "model": "all-MiniLM-L6-v2",
    "input": "Where is the backup of the NAS?",
    "input_type": "query",
}
_EXAMPLE_MANY: dict[str, JsonValue] = {
    "model": "all-MiniLM-L6-v2",
    "input": ["The NAS is backed up every night.", "The router was replaced in May."],
    "input_type": "document",
    "encoding_format": "base64",
}


class EmbeddingRequest(BaseModel):
    """Texts to embed. Unknown fields are ignored, since OpenAI clients send some of their own."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [_EXAMPLE_ONE, _EXAMPLE_MANY]})

    input: Text | Texts = Field(
        description="A text, or a list of up to 2,048. Token ids are refused, since each model tokenises differently."
    )
    model: Text | None = Field(default=None, description="The served model's name; may be left out.")
    encoding_format: Literal["float", "base64"] | None = Field(
        default=None, description="float (default) or base64 of little-endian float32, which is several times cheaper."
    )
    dimensions: Annotated[int, Field(strict=True)] | None = Field(
        default=None, description="Only the model's own number of dimensions is taken."
    )
    input_type: Literal["query", "document", "passage", "search_query", "search_document"] | None = Field(
        default=None,
        description="query: the model's query prefix, and the lane that waits for nobody. document: the document "
        "prefix and the bulk lane. Left out or null: the same as document, because a caller that does not say what a "
        "text is must get the vectors that are stored. Say query for queries. passage is NIM's word for document; "
        "search_query and search_document are Cohere's.",
    )
    truncate: Truncate | None = Field(
        default=None,
        description="true or END (default): a text beyond the model's window loses its end but keeps its final "
        "separator; usage.truncated_inputs counts them. false or NONE: it is refused.",
    )

    on_error: Literal["fail", "skip"] | None = Field(
        default=None,
        description="fail (default): a text that cannot be embedded fails the request. skip: the answer has the "
        "vectors of the others, and names such texts in `skipped`.",
    )

    @property
    def is_query(self) -> bool:
        """Whether the texts are queries."""
        return self.input_type in {"query", "search_query"}

    @property
    def texts(self) -> list[str]:
        """The texts to embed."""
        return [self.input] if isinstance(self.input, str) else self.input


class EmbeddingItem(BaseModel):
    """The vector of one text."""

    object: Literal["embedding"] = "embedding"
    index: int = Field(description="Position of the text in the request.")
    embedding: list[float] | str = Field(description="A unit vector, as floats or base64.")
    truncated: Literal[True] | None = Field(
        default=None, description="The model has not read the end of this text. Absent where it has read all of it."
    )


class Usage(BaseModel):
    """The number of tokens and the number of truncated texts in a request."""

    prompt_tokens: int
    total_tokens: int
    truncated_inputs: int = Field(description="How many texts lost their end.")


class SkippedText(BaseModel):
    """A text that cannot be embedded, with the code of the error that would have failed the request."""

    index: int = Field(description="Position of the text in the request.")
    code: str


class EmbeddingResponse(BaseModel):
    """The vectors of a request, in the order of its texts."""

    object: Literal["list"] = "list"
    data: list[EmbeddingItem]
    model: str
    digest: str = Field(description=_SERVED_DIGEST)
    skipped: list[SkippedText] | None = Field(default=None, description="Absent where every text has a vector.")
    usage: Usage


_EXAMPLE_COHERE: dict[str, JsonValue] = {
    "query": "Where is the backup of the NAS?",
    "documents": ["The NAS is backed up every night.", "The router was replaced in May."],
    "top_n": 1,
}
_EXAMPLE_TEI: dict[str, JsonValue] = {
    "query": "Where is the backup of the NAS?",
    "texts": ["The NAS is backed up every night.", "The router was replaced in May."],
}


class RerankRequest(BaseModel):
    """A query and the texts to order by it, as `documents` or as `texts`; which decides the shape of the answer.

    Unknown fields are ignored, since clients send some of their own.
    """

    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [_EXAMPLE_COHERE, _EXAMPLE_TEI]})

    query: Text = Field(description="The query that the texts are scored by.")
    documents: RerankedTexts | None = Field(
        default=None, description="Up to 256 texts, as Cohere's API calls them; the answer is an object."
    )
    texts: RerankedTexts | None = Field(
        default=None, description="Up to 256 texts, as TEI calls them; the answer is a list. Give one of the two."
    )
    model: Text | None = Field(default=None, description="The reranker's name; may be left out.")
    top_n: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None, description="How many of the best to return; all by default."
    )
    raw_scores: Annotated[bool, Field(strict=True)] | None = Field(
        default=None, description="true: the model's own scores. false (default): between 0 and 1, by a sigmoid."
    )
    truncate: Truncate | None = Field(
        default=None,
        description="true or END (default): of a pair beyond the reranker's window, the query keeps half of the window "
        "and the text what is left. false or NONE: it is refused. (TEI's own default is false.)",
    )
    truncation_direction: Literal["Right", "right"] | None = Field(
        default=None, description="Only the end of a text can be cut."
    )
    return_documents: Annotated[bool, Field(strict=True)] | None = Field(
        default=None, description="true: the answer repeats the texts. false (default): it names them by their index."
    )
    return_text: Annotated[bool, Field(strict=True)] | None = Field(
        default=None, description="TEI's name of return_documents."
    )

    @property
    def repeats_texts(self) -> bool:
        """Whether the answer repeats the texts."""
        return bool(self.return_documents or self.return_text)


class RerankedDocument(BaseModel):
    """The score of one document."""

    index: int = Field(description="Position of the document in the request.")
    relevance_score: float
    document: Document | None = Field(default=None, description="Absent without return_documents.")


class RerankedText(BaseModel):
    """The score of one text."""

    index: int = Field(description="Position of the text in the request.")
    score: float
    text: str | None = Field(default=None, description="Absent without return_text.")


class RerankResponse(BaseModel):
    """The scores of a request with `documents`, best first."""

    results: list[RerankedDocument]
    model: str
    digest: str = Field(description="sha256:<hex> of the reranker's file.")
    usage: Usage


class ModelCard(BaseModel):
    """Facts about the served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["memory-index"] = "memory-index"
    dimensions: int
    max_tokens: int
    pooling: str
    digest: str = Field(description=_SERVED_DIGEST)


class ModelList(BaseModel):
    """The list of served models: the embedding model, then the reranker if there is one."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class ErrorBody(BaseModel):
    """What went wrong, and which field of the request is at fault."""

    message: str
    type: str
    param: str | None
    code: str
    indexes: list[int] | None = Field(
        default=None, description="The positions of all texts at fault in the list; absent where it is not a text."
    )


class ErrorEnvelope(BaseModel):
    """The body of every error response."""

    error: ErrorBody


def truncates(given: bool | str | None) -> bool:
    """Return whether texts beyond the window are truncated; `given` is the field `truncate` of a request."""
    return given not in {False, "NONE"}


def parse_request(body: bytes, model: type[Request]) -> Request:
    """Parse a request body that `check_structure` has accepted, as a request of the type `model`.

    Half a character in a text becomes U+FFFD, since it would otherwise cost the caller all texts of the request.

    Raises:
        EmbedderError: the body is malformed or has too many texts; the message names the field and what it must be, and
            quotes nothing of the body.
    """
    try:
        try:
            return model.model_validate_json(body)
        except ValidationError:
            repaired = with_whole_characters(body)
            if repaired == body:
                raise
            return model.model_validate_json(repaired)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        raise _refusal(problems, next(iter(model.model_fields))) from None  # the cause quotes the input


_EXPECTED = {
    "input": "a string or a list of strings",
    "model": "a string",
    "encoding_format": '"float" or "base64"',
    "dimensions": "a whole number",
    "input_type": '"query" ("search_query"), "document" ("passage", "search_document") or null',
    "on_error": '"fail" or "skip"',
    "truncate": 'true ("END") or false ("NONE")',
    "query": "a string",
    "documents": "a list of strings, or of objects with a string as 'text'",
    "texts": "a list of strings, or of objects with a string as 'text'",
    "top_n": "a whole number of at least 1",
    "raw_scores": "true or false",
    "truncation_direction": '"Right"',
    "return_documents": "true or false",
    "return_text": "true or false",
}
_LISTS = {"input": MOST_TEXTS, "documents": MOST_RERANKED, "texts": MOST_RERANKED}


def _refusal(problems: list[Any], required: str) -> EmbedderError:
    first = problems[0]
    field = first["loc"][0] if first["loc"] else None
    if field not in _EXPECTED:
        return EmbedderError(
            ErrorKind.MALFORMED, f"The body must be a JSON object in UTF-8 with at least the field '{required}'."
        )
    if field == "input" and any(_is_token(problem["input"]) for problem in problems):
        return EmbedderError(
            ErrorKind.TOKEN_INPUT,
            "Token ids are not taken, since each model tokenises differently; send text. LangChain's OpenAIEmbeddings "
            "does with check_embedding_ctx_length=False.",
            param="input",
        )
    if field in _LISTS and any(problem["type"] == "too_long" for problem in problems):
        return EmbedderError(
            ErrorKind.TOO_LARGE, f"More than {_LISTS[field]} texts; split the request.", param=str(field)
        )
    missing = first["type"] == "missing"
    verb = "is missing; it must be" if missing else "must be"
    return EmbedderError(ErrorKind.MALFORMED, f"'{field}' {verb} {_EXPECTED[str(field)]}.", param=str(field))


def _is_token(value: object) -> bool:
    inner = value[0] if isinstance(value, list) and value else value
    return isinstance(inner, int) and not isinstance(inner, bool)
