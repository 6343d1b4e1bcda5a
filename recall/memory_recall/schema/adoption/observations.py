"""What is observed of a table before it is adopted: facts of the catalog, and measures of a bounded sample of its rows.

No value of a row is among them. Of texts there are lengths and scripts, of documents the names of known keys.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

FULL_PAGES = 100  # percent; the fillfactor of a table that has none of its own


@dataclass(frozen=True, slots=True)
class DocumentKey:
    """A key in a column of type json or jsonb, whose name is one of those that are looked for.

    `path` has the names from the outermost to this one. `share` is the share of the sampled rows that have it, 0 to 1,
    and `types` are the types of its values as JSON names them, such as "string", without "null".
    """

    column: str
    path: tuple[str, ...]
    share: float
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The least and the greatest number of a column in the sampled rows."""

    least: float
    greatest: float


@dataclass(frozen=True)
class TableObservation:
    """What the catalog and a sample say of a table, whichever columns are used.

    `rows` is exact where `counted` is true, else an estimate. `table_bytes` are those of the rows with
    their long values, `index_bytes` those of all indexes. `primary_key` names its columns in order, `unique` those
    that a valid unique index keeps unique alone. `widths` are mean lengths of texts in bytes, by column. `updates` of
    rows are counted since `counting_since`, a date, or None where the counters were never reset; `hot_updates` of them
    touched no index. `fillfactor` is the greatest of the table's or its partitions', in percent. `publications` are
    those for logical replication that have the table with whatever columns it has. `triggers` are those, not ours, that
    fire before or after each update of a row.
    """

    rows: int = 0
    counted: bool = False
    table_bytes: int = 0
    index_bytes: int = 0
    primary_key: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    document_keys: tuple[DocumentKey, ...] = ()
    widths: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, NumberRange] = field(default_factory=dict)
    updates: int = 0
    hot_updates: int = 0
    fillfactor: int = FULL_PAGES
    counting_since: str | None = None
    publications: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextObservation:
    """What a sample of rows says of their texts. `rows` are the sampled ones, of which `texts` have a text.

    `mean_characters` and `mean_bytes` are those of a text. `longer` counts the texts of more than `window` characters,
    which is None where the model's window is not known. `scripts` counts texts by the Unicode script of most of their
    letters; it is empty where the database's encoding is not UTF8. `sensitive` and `deleted` count sampled rows.
    """

    rows: int = 0
    texts: int = 0
    mean_characters: float = 0
    mean_bytes: float = 0
    window: int | None = None
    longer: int = 0
    scripts: Mapping[str, int] = field(default_factory=dict)
    sensitive: int = 0
    deleted: int = 0

    def beyond(self, scripts: Collection[str]) -> int:
        """Return how many texts are in none of these scripts. Texts without letters are not counted."""
        return sum(count for name, count in self.scripts.items() if name not in scripts)


@dataclass(frozen=True, slots=True)
class DatabaseObservation:
    """The database of a table. `folds_case` says whether its locale knows the small letters of every script.

    `locale` is its character type with the provider, such as "C.UTF-8 (libc)". `extension` is the version of pgvector
    that is created in it, and `available` the one that the server has; each is None if there is none. The server lets
    at most `prepared_transactions` transactions be prepared for a two-phase commit at a time.
    """

    name: str
    server_version: str
    encoding: str
    locale: str
    folds_case: bool
    extension: str | None
    available: str | None
    prepared_transactions: int
