"""The query of a recall: one frozen value that checks its own fields.

The library, the FastAPI router, the command line, the SQLite recall and the benchmarks all use the same class.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from memory_recall.embedding.direction import has_direction
from memory_recall.errors import InvalidInput
from memory_recall.search.fusion import Fusion, SortBy
from memory_recall.search.relevance import Level
from memory_recall.search.sql.filters import NO_FILTERS, Filters
from memory_recall.search.sql.visibility import Everyone, Owner
from memory_recall.search.validation import check_fields

Mode = Literal["hybrid", "lexical", "dense"]
Lexical = Literal["bm25", "ts_rank"]

MAX_LIMIT = 10_000
_MAX_OFFSET = 1_000_000_000  # well below the limit of OFFSET in Postgres and SQLite
MAX_QUERY_CHARACTERS = 50_000  # Postgres refuses texts of a megabyte; nobody's question is that long


def cleaned(text: str) -> str:
    """Return a text without NUL and lone surrogates, which Postgres cannot store, and cut to 50,000 characters."""
    return text.replace("\x00", " ").encode("utf-8", "ignore").decode("utf-8").strip()[:MAX_QUERY_CHARACTERS]


def _cleaned_if_text(text: object) -> object:
    return cleaned(text) if isinstance(text, str) else text


def _directed(embedded: "EmbeddedQuery | None") -> "EmbeddedQuery | None":
    if embedded is not None and not has_direction(embedded.vector):
        raise PydanticCustomError("direction", "Input should not be a vector of length zero")
    return embedded


@dataclass(frozen=True, slots=True)
class EmbeddedQuery:
    """A query's vector, the name of the model that made it, and the digest of that model's file.

    The dense leg takes part only if the table's vectors come from the same file of the same model. What is None is not
    compared, and the digest is compared only if the database records one; so with neither given, nothing is compared.
    Where the database records a canary in place of a digest, the model has to be given with the digest.
    """

    vector: list[float]
    model: str | None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class FurtherWords:
    """Words beside those of a query that the lexical leg also searches, each with `weight` (above 0, at most 1).

    A word of the query itself has the weight one.
    """

    text: str
    weight: float


@dataclass(frozen=True, slots=True)
class RecallQuery:
    """The query of a recall, with everything that decides how it is answered.

    `text` is the query; NUL, lone surrogates and everything after 50,000 characters are removed. `user_id` is the user
    whose memories are searched. `EVERYONE` searches the memories of all users; if a user asks, give
    `Everyone(reader=...)` instead. The result is a page of at most `limit` memories (1 to 10,000) after the first
    `offset` (0 to 1,000,000,000). A page may hold fewer memories: each leg returns 50 rows, or as many as the page
    needs but at most 1,000, so both legs together find at most 2,000 memories. A `sensitive` query is never sent to a
    hosted embedder; if there is no other embedder, only the lexical leg answers the query. Expressions such as "last
    week" are relative to `now`; None stands for the present. `vector` is the query's embedding if the caller has
    computed it already. `fusion` replaces that of the recall's options. With `explain` True, the time of each leg is
    measured. With `expand` True, a `QueryExpansion` asks its language model for further words, unless the query is
    `sensitive`.

    `least_relevance` is a level or a number from 0 to 1. Unless it is `everything`, each memory of the page has a
    relevance, and those with less are held back, so that a page may be empty. Nothing is held back where relevance is
    not known, and the result says why. With `max_tokens` (1 or more), the contents of the page together have at most
    about so many tokens, each estimated as four bytes of UTF-8: memories are taken in order of relevance if it is
    known, else in their order, as long as they still fit, and keep their places. With `distinct` True, a near-copy of a
    memory placed before it takes no place: one whose vector is nearly the same, or whose content is. Only the first 50
    to 200 places are compared, four times as many as the page needs; a sensitive memory is never a copy.

    Raises:
        InvalidInput: a field is of the wrong type or out of range, a time has no time zone, `user_id` is empty, or
            `vector` has the length zero.
    """

    text: Annotated[str, BeforeValidator(_cleaned_if_text)]
    _: KW_ONLY
    user_id: Owner
    filters: Filters = NO_FILTERS
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 10
    offset: Annotated[int, Field(ge=0, le=_MAX_OFFSET)] = 0
    mode: Mode = "hybrid"
    sort_by: Annotated[SortBy, Field(strict=False)] = SortBy.RELEVANCE
    sensitive: bool = False
    least_relevance: Level | Annotated[float, Field(ge=0, le=1)] = "everything"
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    distinct: bool = False
    now: AwareDatetime | None = None
    vector: Annotated[EmbeddedQuery | None, AfterValidator(_directed)] = None
    fusion: Fusion | None = None
    explain: bool = False
    expand: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def ranked(self) -> bool:
        """Whether the result is ordered by score. Otherwise it is ordered by date or importance."""
        return bool(self.text) and self.sort_by is not SortBy.RECENCY

    @property
    def selective(self) -> bool:
        """Whether filters or an owner restrict the search to a part of the memories."""
        return self.filters.selective or not isinstance(self.user_id, Everyone)


def require_query(query: object) -> RecallQuery:
    """Return the query unchanged, provided that it is a `RecallQuery`.

    Raises:
        InvalidInput: the query is of another type, such as a text, which does not say whose memories are to be
            searched.
    """
    if not isinstance(query, RecallQuery):
        raise InvalidInput(
            f"A recall takes a RecallQuery, not {type(query).__name__}.",
            "Give RecallQuery(text, user_id=...), with EVERYONE for everybody's memories.",
        )
    return query


def mode_named(name: str) -> Mode:
    """Return the search mode with this name, such as "hybrid".

    Raises:
        InvalidInput: there is no such mode.
    """
    known: dict[str, Mode] = {mode: mode for mode in get_args(Mode)}
    if name not in known:
        raise InvalidInput(f"There is no mode {name!r}.", f"Use one of: {', '.join(known)}.")
    return known[name]
