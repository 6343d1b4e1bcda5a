"""What the columns of the user's table are called, and where in a column a value stands.

Each column that is used has a name of ours, such as `content`. The user's table may have another name for it, or keep
the value inside a column of type json or jsonb, as `payload->>'data'`. The text of a memory may come from several
columns. What was chosen is recorded when the table is migrated, and read from there by everybody else.
"""

import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from memory_recall.errors import DatabaseRejected, InvalidConfiguration
from memory_recall.schema.columns.used import USED_COLUMNS, UsedColumn

_PATH = re.compile(
    r"\s*(?P<column>[^\s'\">-][^'\">-]*?|\"(?:[^\"]|\"\")+\")\s*(?P<steps>(?:->>?\s*'(?:[^']|'')+'\s*)+)"
)
_STEP = re.compile(r"(->>?)\s*'((?:[^']|'')+)'")
_USED = {used.name: used for used in USED_COLUMNS}
_LONGEST_NAME = 63  # bytes; Postgres cuts longer names
_LONGEST_KEY = 200  # characters of one step of a path
_MOST_STEPS = 8
_MOST_PARTS = 8  # columns that make up the text
_LONGEST_SOURCE = 500  # characters, as the resource has it
_LONGEST_RECORD = 50_000  # characters
_LONGEST_CONFIGURATION = 127  # characters: a name with its schema

EMBEDDING: Final = "embedding"
OTHER_EMBEDDING: Final = "memory_embedding"
"""The usual name of our column of vectors, and one for tables in which this name is another column's."""

OWN_SEARCH_COLUMN = "memory_search_vector"
"""The search column that is added to a table which has none."""


class _Record(BaseModel):
    """The names as the database records them."""

    model_config = ConfigDict(strict=True)

    columns: dict[str, list[str]] = Field(default_factory=dict)
    text_search_configuration: str | None = Field(default=None, max_length=_LONGEST_CONFIGURATION)
    embedding: Literal["embedding", "memory_embedding"] = EMBEDDING


_RECORD = TypeAdapter(_Record)


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Where a value stands: in a column, or at a path of keys in a column of type json or jsonb."""

    column: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the source as a person writes it."""
        if not self.path:
            return self.column
        keys = ["'" + key.replace("'", "''") + "'" for key in self.path]
        return "".join([self.column, *(f"->{key}" for key in keys[:-1]), f"->>{keys[-1]}"])

    def overlaps(self, other: "ColumnSource") -> bool:
        """Return whether one of the two sources is the other one or contains it."""
        same = zip(self.path, other.path, strict=False)
        return self.column == other.column and all(one == another for one, another in same)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a source as a person writes it: `body`, or `payload->'meta'->>'user'`.

        Raises:
            ValueError: the text is neither a name that Postgres keeps nor a path; its message says why.
        """
        if len(text) > _LONGEST_SOURCE:
            raise ValueError(f"a name or a path has at most {_LONGEST_SOURCE} characters")
        found = _PATH.fullmatch(text)
        column, path = text, tuple[str, ...]()
        if found is not None:
            column = found["column"]
            if column.startswith('"'):
                column = column[1:-1].replace('""', '"')
            steps = _STEP.findall(found["steps"])
            path = tuple(key.replace("''", "'") for _, key in steps)
            if [arrow for arrow, _ in steps] != ["->"] * (len(steps) - 1) + ["->>"]:
                raise ValueError("a path has -> before each key but the last, and ->> before the last")
        elif "->" in text:
            raise ValueError("a path is written like payload->'meta'->>'user'")
        if len(path) > _MOST_STEPS or any(len(key) > _LONGEST_KEY for key in path):
            raise ValueError(f"a path has at most {_MOST_STEPS} keys of {_LONGEST_KEY} characters")
        if not 0 < len(column.encode()) <= _LONGEST_NAME or not column.isprintable():
            raise ValueError(f"a name has 1 to {_LONGEST_NAME} bytes, all of them printable")
        return cls(column, path)


Sources = tuple[ColumnSource, ...]


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The sources of the used columns that have another name than ours.

    A column without a source is not used, whatever the table has. The text alone may have several sources, which are
    joined by a blank line. `text_search_configuration` was chosen for a search column whose definition names none, ours
    among them; None chooses none. `embedding` is the name of our column of vectors.
    """

    sources: Mapping[str, Sources] = field(default_factory=dict)
    text_search_configuration: str | None = None
    embedding: str = EMBEDDING

    def of(self, name: str) -> Sources:
        """Return the sources of a used column; there is none if the column is not to be used."""
        return self.sources.get(name, (ColumnSource(name),))

    def written(self, name: str) -> str:
        """Return the sources of a column as a person writes them, separated by commas."""
        return ", ".join(map(str, self.of(name)))

    @property
    def all_public(self) -> bool:
        """Whether it was said that no row of the table is sensitive."""
        return not self.of("is_sensitive")

    @property
    def has_own_search_column(self) -> bool:
        """Whether the words of the text are in a search column of ours."""
        return self.of("search_vector") == (ColumnSource(OWN_SEARCH_COLUMN),)

    def for_table(self, columns: Container[str]) -> "ColumnNames":
        """Return the names for a table with these columns: without a search column, it gets one of ours."""
        if "search_vector" in self.sources or "search_vector" in columns:
            return self
        return replace(self, sources={**self.sources, "search_vector": (ColumnSource(OWN_SEARCH_COLUMN),)})

    def to_json(self) -> str:
        """Return the names as the database records them; equal names give equal texts."""
        written = {name: [str(one) for one in sources] for name, sources in sorted(self.sources.items())}
        chosen = self.text_search_configuration
        record = {"columns": written, "embedding": self.embedding, "text_search_configuration": chosen}
        return json.dumps(record, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the names as the database records them.

        Whoever may write to our tables could have written anything, so the record is judged like what a person gives.

        Raises:
            DatabaseRejected: the record is not one that a migration has written.
        """
        try:
            record = _RECORD.validate_json(text if len(text) <= _LONGEST_RECORD else "")
            sources = {name: _parsed(name, given) for name, given in record.columns.items()}
        except ValueError:
            raise DatabaseRejected(
                "The recorded names of the table's columns are malformed.",
                "Restore the table memory_index_state from a backup, or write what was recorded into its column_names.",
            ) from None
        return cls(sources, record.text_search_configuration, record.embedding)

    @classmethod
    def parse(
        cls,
        columns: Mapping[str, str | Sequence[str]],
        *,
        all_public: bool = False,
        text_search_configuration: str | None = None,
    ) -> Self:
        """Read the names as a person gives them, by our names; an empty text says that a column is not to be used.

        In place of a search column that is not to be used, the table gets one of ours. `embedding` is what our own
        column of vectors is called. `all_public` says that no row of the table is sensitive, so that there is no column
        of sensitivity.

        Raises:
            InvalidConfiguration: a name is unknown, or a source cannot be used; the message names all of them.
        """
        faults, sources, embedding = list[str](), dict[str, Sources](), EMBEDDING
        for name, given in columns.items():
            parts = [given] if isinstance(given, str) else list(given)
            try:
                if name == EMBEDDING:
                    embedding = _own_name(parts)
                    continue
                sources[name] = _parsed(name, [part for part in parts if part != ""])
            except ValueError as error:
                faults.append(f"{name}: {error}.")
        if all_public and sources.get("is_sensitive"):
            faults.append("is_sensitive: a column is named, although no row is said to be sensitive.")
        if not all_public and sources.get("is_sensitive") == ():
            faults.append(
                "is_sensitive: that no row is sensitive has to be said with MEMORY_SENSITIVITY=none (in a cluster, "
                "database.sensitivity: None)."
            )
        if faults:
            raise InvalidConfiguration(
                " ".join(faults),
                "Correct MEMORY_COLUMNS (in a cluster, spec.database.columns); the columns are "
                f"{', '.join(_USED)}, and {EMBEDDING}, which is ours.",
            )
        named = {name: found for name, found in sources.items() if found != (ColumnSource(name),)}
        return cls({**named, "is_sensitive": ()} if all_public else named, text_search_configuration, embedding)


OUR_NAMES = ColumnNames()


def _own_name(parts: Sequence[str]) -> str:
    if len(parts) != 1 or parts[0] not in {EMBEDDING, OTHER_EMBEDDING}:
        raise ValueError(f"our column of vectors is called {EMBEDDING} or {OTHER_EMBEDDING}")
    return parts[0]


def _parsed(name: str, parts: Sequence[str]) -> Sources:
    used = _USED.get(name)
    if used is None:
        raise ValueError("there is no such column")
    if not parts and name == "search_vector":
        return (ColumnSource(OWN_SEARCH_COLUMN),)
    if not parts and not used.may_be_absent:
        raise ValueError("it cannot be left out")
    if len(parts) > (_MOST_PARTS if name == "content" else 1):
        raise ValueError(f"it has at most {_MOST_PARTS if name == 'content' else 1} sources")
    sources = tuple(ColumnSource.parse(part) for part in parts)
    if any(source.path for source in sources) and used.at_path is None:
        raise ValueError("it must be a column of its own, not a path")
    return sources


def resource_name(name: str) -> str:
    """Return the name that a used column has in the resource: `deletedAt` for `deleted_at`."""
    first, *others = name.removeprefix("is_").split("_")
    return first + "".join(word.capitalize() for word in others)


def used_column(name: str) -> UsedColumn:
    """Return what is demanded of a used column.

    Raises:
        KeyError: there is no such column.
    """
    return _USED[name]
