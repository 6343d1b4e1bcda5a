"""The two columns that may hold vectors, and everything whose name follows from them.

`embedding` is what recalls read. `embedding_standby` exists only from the start of a model swap until it is finished or
aborted: before the flip it takes the next model's vectors, after it, it keeps the previous model's for the way back.
The flip exchanges the names of both columns and of what belongs to them, so every other part of the program only ever
says which of the two it means.
"""

from dataclasses import dataclass
from typing import Literal

GUARDED_WRITER = "memory_index.writer"  # a setting of our writers' sessions, which name the model of what they write
GUARDED = "guarded"


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """One of the two columns; `role` is the column of memory_index_state that names the model it takes."""

    name: str
    role: Literal["active_model", "next_model"]
    failures: str
    constraint: str

    def pending_index(self, table: str) -> str:
        """The partial index over rows that lack this column's vector."""
        return f"idx_{table}_{self.name}_pending"


ACTIVE = VectorColumn("embedding", "active_model", "memory_embedding_failures", "memory_index_no_private_embedding")
STANDBY = VectorColumn("embedding_standby", "next_model", "memory_standby_failures", "memory_index_no_private_standby")
