"""The columns of the user's table that we use: of which types each may be, what for, and what else is demanded of it.

This is the only list of them. `memory migrate`, `memory status` and the operator compare a table with it before
anything is changed, and the reference page of columns is written from it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Generated = Literal["stored", "virtual"]

TEXTS = ("text", "character varying")
INTEGERS = ("smallint", "integer", "bigint")
KEYS = ("bigint", "integer", "smallint", "uuid", *TEXTS)
MOMENTS = ("timestamp with time zone", "timestamp without time zone")


class Need(StrEnum):
    """Who cannot do without a column."""

    ALWAYS = "everything"
    RECALL = "recalls"
    OPTIONAL = "nobody"


@dataclass(frozen=True, slots=True)
class UsedColumn:
    """A column of the user's table that is used if it is there.

    `types` are the types that it may have, as Postgres names them, the usual one first. `generated` are the kinds of
    generated column that it may be: the rules' triggers run before Postgres computes a generated column, so the columns
    that they read must be plain ones. `adding` is what follows ADD COLUMN in the statement that adds it. `at_path` is
    the type that a value has which stands inside a column of type json or jsonb, or None if it must not stand there.
    With `may_be_absent`, a person may say that the table has no such column.
    """

    name: str
    need: Need
    types: tuple[str, ...]
    purpose: str
    adding: str
    generated: tuple[Generated, ...] = ("stored",)
    nullable: bool = False
    at_path: str | None = None
    may_be_absent: bool = True


USED_COLUMNS = (
    UsedColumn(
        "id", Need.ALWAYS, KEYS,
        "The key by which a memory is known. A unique index on it alone is demanded, too.",
        "bigint GENERATED ALWAYS AS IDENTITY UNIQUE", (), may_be_absent=False,
    ),
    UsedColumn(
        "content", Need.ALWAYS, TEXTS,
        "The text that is searched and embedded. A row in which it is NULL gets no vector.",
        "text", (), at_path="text", may_be_absent=False,
    ),
    UsedColumn(
        "is_sensitive", Need.ALWAYS, ("boolean", *INTEGERS),
        "Whether the text must never be embedded: false or 0 says that it may be, and NULL counts as sensitive.",
        "boolean NOT NULL DEFAULT false", (), at_path="text",
    ),
    UsedColumn(
        "deleted_at", Need.ALWAYS, (*MOMENTS, "boolean"),
        "When the memory was deleted, or true if it was. Such a row is neither embedded nor found. A time must accept"
        " NULL.",
        "timestamp with time zone", (), nullable=True, at_path="text",
    ),
    UsedColumn(
        "search_vector", Need.RECALL, ("tsvector",),
        "The words of the text, in which recalls look; give it a GIN index. A table without it gets a column of ours.",
        "tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED", may_be_absent=False,
    ),
    UsedColumn(
        "user_id", Need.OPTIONAL, (*TEXTS, "uuid", *INTEGERS),
        "Whose memory it is. Without it, the table belongs to one user.",
        "text", at_path="text",
    ),
    UsedColumn("category", Need.OPTIONAL, TEXTS, "What a filter and answers show.", "text", at_path="text"),
    UsedColumn(
        "tags", Need.OPTIONAL, TEXTS,
        "Tags with commas between them, for a filter, the concept graph and curation.",
        "text", at_path="text",
    ),
    UsedColumn(
        "expanded_keywords", Need.OPTIONAL, (*TEXTS, *(f"{kind}[]" for kind in TEXTS)),
        "Further words for the concept graph.",
        "text", at_path="text",
    ),
    UsedColumn(
        "importance", Need.OPTIONAL, ("real", "double precision", "numeric", *INTEGERS),
        "A number from 0 to 1 that takes part in the order. Without it, it plays no part.",
        "real", ("stored", "virtual"), at_path="double precision",
    ),
    UsedColumn(
        "created_at", Need.OPTIONAL, MOMENTS,
        "When the memory was made, for filters, named times, the order by date, and curation. A timestamp without time"
        " zone is read as UTC, whatever the session's time zone is.",
        "timestamp with time zone NOT NULL DEFAULT now()", ("stored", "virtual"),
        at_path="timestamp with time zone",
    ),
    UsedColumn(
        "updated_at", Need.OPTIONAL, MOMENTS,
        "When the memory was changed, which answers show and an import writes. Without time zone it is read as UTC.",
        "timestamp with time zone NOT NULL DEFAULT now()", ("stored", "virtual"),
        at_path="timestamp with time zone",
    ),
)  # fmt: skip
