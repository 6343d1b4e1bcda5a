"""The types of the key by which memories are known, and how ids pass between SQL and Python.

In Python an id is an integer where the key is one, and else a text, whether the key is a text or a UUID. Our own tables
hold ids in a column of the type `stored`.
"""

import re
from dataclasses import dataclass
from uuid import UUID

from memory_recall.errors import InvalidInput

MemoryId = int | str
"""An id of a memory: an integer where the table's key is one, else a text."""

_LARGEST = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
_NUMBER = re.compile("-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class KeyType:
    """The type of a table's key, named as Postgres names it."""

    name: str

    @property
    def is_integer(self) -> bool:
        """Whether ids are integers."""
        return self.name in _LARGEST

    @property
    def stored(self) -> str:
        """The type of the columns of our own tables that hold ids, and of bound ids: bigint, uuid or text."""
        if self.is_integer:
            return "bigint"
        return "uuid" if self.name == "uuid" else "text"

    def shown(self, expression: str) -> str:
        """Return SQL for an id as it is read into Python; `expression` is SQL for a value of the key."""
        return f"{expression}::text" if self.name == "uuid" else expression

    def hashed(self, expression: str) -> str:
        """Return SQL for a bigint of an id, by which rows are shared out; `expression` is SQL for the key."""
        if self.is_integer:
            return f"{expression}::bigint"
        return f"hashtext({expression}::text)::bigint"

    def parse(self, text: str) -> MemoryId:
        """Return the id that a person names by a text.

        Raises:
            InvalidInput: no value of the key is written like this.
        """
        found = self._read(text)
        if found is None:
            raise InvalidInput(f"{text[:80]!r} is no id of a memory.", self._remedy)
        return found

    def checked(self, given: MemoryId) -> MemoryId:
        """Return the id that a record of a file holds, as the database shows it.

        Raises:
            InvalidInput: it is a text where ids are integers, or the other way round, or no value of the key. The
                message does not quote it, since anything may stand in a file.
        """
        found = self._read(str(given)) if isinstance(given, int) is self.is_integer else None
        if found is None:
            raise InvalidInput("What stands for an id in the file is no id of a memory.", self._remedy)
        return found

    @property
    def _remedy(self) -> str:
        return f"An id of this table is of the type {self.name}."

    def _read(self, text: str) -> MemoryId | None:
        """Return the id that is written like this, or None if no value of the key is."""
        if self.is_integer:
            number = int(text) if _NUMBER.fullmatch(text) else None
            return None if number is None or not -_LARGEST[self.name] <= number < _LARGEST[self.name] else number
        if self.name == "uuid":
            try:
                return str(UUID(text))
            except ValueError:
                return None
        return None if "\x00" in text else text
