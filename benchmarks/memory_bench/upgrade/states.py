"""The states of a database from which an upgrade begins: what the baseline made, whole or damaged.

`baseline.sql` is a dump of a database that revision 0001 made for the light model `first`: some memories, among them a
sensitive and a deleted one, their vectors, and the vector index. From release 0.1.0 on it is never written again, so
that every later release is tried on what users of 0.1.0 have.
"""

from dataclasses import dataclass
from pathlib import Path

DUMP = Path(__file__).with_name("baseline.sql")
HNSW = "idx_memories_embedding"


@dataclass(frozen=True)
class StartingState:
    """A restored dump after the SQL statement `change`, if there is one, which the database's owner runs."""

    name: str
    change: str | None = None


STARTING_STATES = (
    StartingState("vectors"),
    StartingState("pending", "UPDATE memories SET embedding = NULL"),
    StartingState("index-dropped", f"DROP INDEX {HNSW}"),
    StartingState("constraint-dropped", "ALTER TABLE memories DROP CONSTRAINT memory_index_no_private_embedding"),
)
BY_NAME = {state.name: state for state in STARTING_STATES}
