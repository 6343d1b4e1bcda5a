"""Reads memories from JSON lines, checking every line before anything is stored.

Each line is one memory, a `MemoryLine`. In a labelled set the field `conv` names the user of the memory. Error messages
name the line and the field and never quote the value, because that is part of a memory.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from memory_recall.errors import InvalidInput
from memory_recall.schema.columns.keys import KeyType

MAX_COMPLAINTS = 20
MAX_LABEL_CHARACTERS = 1_000_000
"""The most characters of a category, an owner or an id, which are shorter where the table's column is."""


def _joined(value: object) -> object:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return value


def _listed(value: object) -> object:
    return (value.split(",") if value else []) if isinstance(value, str) else value


def _flag(value: object) -> object:
    return bool(value) if isinstance(value, int) and value in (0, 1) else value


def _with_zone(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    except OverflowError:
        raise PydanticCustomError("moment", "Input should be within the years 1 to 9999 of UTC") from None


def _owner(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


JoinedText = Annotated[StrictStr, BeforeValidator(_joined)]
Keywords = Annotated[list[StrictStr | None], BeforeValidator(_listed)]
Label = Annotated[StrictStr, Field(max_length=MAX_LABEL_CHARACTERS)]
Owner = Annotated[Label, BeforeValidator(_owner)]
Id = TypeVar("Id", int, str)


class MemoryLine(BaseModel, Generic[Id]):
    """The checked fields of one line of JSON. Its id is an integer where the table's key is one, else a text."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    id: Id
    content: StrictStr
    category: Label | None = None
    tags: JoinedText | None = None
    expanded_keywords: Keywords | None = None
    importance: float | None = Field(default=None, allow_inf_nan=False)  # a recall bounds what is beyond 0 to 1
    is_sensitive: Annotated[StrictBool | None, BeforeValidator(_flag)] = None
    user_id: Owner | None = None
    conv: Owner | None = None
    created_at: Annotated[datetime, AfterValidator(_with_zone)] | None = None

    def record(self) -> dict[str, Any]:
        """Return the line's values by column; None for a field that the line lacks."""
        return {**self.model_dump(exclude={"conv"}), "user_id": self.owner}

    @property
    def owner(self) -> str | None:
        """The user of the memory, or None if the line names none."""
        return self.user_id if self.user_id is not None else self.conv


AnyLine = MemoryLine[int] | MemoryLine[str]
_NUMBERED = MemoryLine[Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]]
_NAMED = MemoryLine[Label]


class CorpusReader:
    """Reads the memories of a file, and collects the errors of the lines that cannot be imported.

    `key` is the type of the ids of the table into which they are imported.
    """

    def __init__(self, key: KeyType) -> None:
        self._key = key
        self.complaints: list[str] = []
        self.complaint_count = 0
        self.read = 0
        self.fields: set[str] = set()  # those that a valid line has, by the names of their columns

    def memories(self, lines: Iterable[bytes]) -> Iterator[tuple[int, AnyLine]]:
        """Yield each valid memory with its line number. After the first error, the remaining lines are only checked."""
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            memory = self._parsed(number, line)
            if memory is not None:
                self.read += 1
                self.fields.update(name for name, value in memory.record().items() if value is not None)
                if not self.complaint_count:
                    yield number, memory

    def complain(self, number: int, problem: str) -> None:
        """Record that a line has an error."""
        self.complaint_count += 1
        if len(self.complaints) < MAX_COMPLAINTS:
            self.complaints.append(f"line {number}: {problem}")

    def require_clean(self) -> None:
        """Refuse the whole file if any of its lines has an error.

        Raises:
            InvalidInput: a line has an error; the message lists the errors of the first lines.
        """
        if not self.complaint_count:
            return
        more = self.complaint_count - len(self.complaints)
        listed = "; ".join(self.complaints) + (f"; and {more} more" if more else "")
        raise InvalidInput(f"Nothing was imported: {listed}.", "Correct these lines and import the file again.")

    def _parsed(self, number: int, line: bytes) -> AnyLine | None:
        kind: type[AnyLine] = _NUMBERED if self._key.is_integer else _NAMED
        try:
            memory = kind.model_validate(orjson.loads(line))
        except orjson.JSONDecodeError as error:
            self.complain(number, f"malformed JSON at column {error.colno}")
        except ValidationError as error:
            self.complain(number, _described(error))
        else:
            problem = _unstorable(memory) or self._foreign(memory)
            if problem is None:
                return memory
            self.complain(number, problem)
        return None

    def _foreign(self, memory: AnyLine) -> str | None:
        """Return what is wrong with an id that the table's key cannot hold, or None."""
        try:
            self._key.checked(memory.id)
        except InvalidInput:
            if self._key.is_integer:
                than = "smaller" if int(memory.id) < 0 else "larger"
                return f"id is {than} than the table's {self._key.name} key can be"
            return f"id is not of the type {self._key.name}, which the table's key has"
        return None


def _described(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return ", ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'the line'}: {problem['msg'].lower()}"
        for problem in problems
    )


def _unstorable(memory: AnyLine) -> str | None:
    if not memory.content.strip():
        return "content is empty"
    for name in ("id", "content", "category", "tags", "expanded_keywords", "user_id", "conv"):
        value = getattr(memory, name)
        if any(isinstance(text, str) and "\0" in text for text in (value if isinstance(value, list) else [value])):
            return f"{name} contains a NUL character, which Postgres cannot store"
    return None
