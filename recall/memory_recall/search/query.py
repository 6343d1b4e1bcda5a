"""What a recall is asked: one frozen value that checks itself.

The library, the router, the command line, SQLite mode and the benchmarks all pass it on as it is.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal, get_args

from pydantic import AwareDatetime, BeforeValidator, Field

from memory_recall.errors import InvalidInput
from memory_recall.search.fusion import Fusion, SortBy
from memory_recall.search.sql.filters import NO_FILTERS, Filters
from memory_recall.search.sql.visibility import Everyone, Owner
from memory_recall.search.validation import check_fields

Mode = Literal["hybrid", "lexical", "dense"]
Lexical = Literal["bm25", "ts_rank"]

MAX_LIMIT = 500
MAX_QUERY_CHARACTERS = 50_000  # Postgres refuses texts of a megabyte; nobody's question is that long


def _cleaned(text: object) -> object:
    """Take out what Postgres cannot store: NUL, lone surrogates, and more text than a tsvector holds."""
    if not isinstance(text, str):
        return text
    return text.replace("\x00", " ").encode("utf-8", "ignore").decode("utf-8").strip()[:MAX_QUERY_CHARACTERS]


@dataclass(frozen=True, slots=True)
class EmbeddedQuery:
    """A query's vector and the name of the model that made it; None skips the comparison with the table's model."""

    vector: list[float]
    model: str | None


@dataclass(frozen=True, slots=True)
class RecallQuery:
    """What is asked of a recall.

    `text` is the query; NUL, lone surrogates and what exceeds 50,000 characters are taken out. `user_id` is the user
    whose memories are searched; `EVERYONE`, or `Everyone(reader=...)` where a user asks, searches everybody's. `limit`
    (1 to 500) and `offset` (0 or more) count memories. A `sensitive` query is never sent to a hosted embedder; where
    there is no other it is answered by the lexical leg. `now` is when the query is asked, for the times that it names,
    by default the present. `vector` is the query's embedding where the caller has it already, `fusion` replaces that of
    the `HybridRecall`, and `explain` also measures the legs.

    Raises:
        InvalidInput: a field is of the wrong type or out of range, a time has no time zone, or the user is nobody.
    """

    text: Annotated[str, BeforeValidator(_cleaned)]
    _: KW_ONLY
    user_id: Owner
    filters: Filters = NO_FILTERS
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 10
    offset: Annotated[int, Field(ge=0)] = 0
    mode: Mode = "hybrid"
    sort_by: Annotated[SortBy, Field(strict=False)] = SortBy.RELEVANCE
    sensitive: bool = False
    now: AwareDatetime | None = None
    vector: EmbeddedQuery | None = None
    fusion: Fusion | None = None
    explain: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def ranked(self) -> bool:
        """Whether scores order the answer, rather than dates or, where there is no text, importance."""
        return bool(self.text) and self.sort_by is not SortBy.RECENCY

    @property
    def selective(self) -> bool:
        """Whether only a part of the memories is searched."""
        return self.filters.selective or not isinstance(self.user_id, Everyone)


def require_query(query: object) -> RecallQuery:
    """Return the query as it is.

    Raises:
        InvalidInput: it is something else, such as a text, which does not say whose memories are to be searched.
    """
    if not isinstance(query, RecallQuery):
        raise InvalidInput(
            f"A recall takes a RecallQuery, not {type(query).__name__}.",
            "Give RecallQuery(text, user_id=...), with EVERYONE for everybody's memories.",
        )
    return query


def mode_named(name: str) -> Mode:
    """The mode of that name.

    Raises:
        InvalidInput: there is no such mode.
    """
    known: dict[str, Mode] = {mode: mode for mode in get_args(Mode)}
    if name not in known:
        raise InvalidInput(f"There is no mode {name!r}.", f"Use one of: {', '.join(known)}.")
    return known[name]
