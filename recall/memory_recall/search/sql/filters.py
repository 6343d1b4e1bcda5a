"""What narrows a recall, and the numbered arguments of the statement that it becomes.

Conditions are written only for filters that are set, so that Postgres plans each shape of statement for itself instead
of one generic plan full of `OR $n IS NULL`.
"""

from dataclasses import dataclass
from datetime import datetime

from memory_recall.schema.table import MemoryTable


@dataclass(frozen=True, slots=True)
class Filters:
    """Which memories may be recalled at all. Deleted ones never are."""

    category: str | None = None
    tags: tuple[str, ...] = ()
    user_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def selective(self) -> bool:
        """Whether anything but deletion narrows the search."""
        return self != Filters()


class Arguments:
    """Collects a statement's arguments; `add` gives the placeholder that stands for the value."""

    def __init__(self) -> None:
        self.values: list[object] = []

    def add(self, value: object, kind: str) -> str:
        """Append one argument and return its placeholder, cast so that its type is never guessed."""
        self.values.append(value)
        return f"${len(self.values)}::{kind}"


def conditions(filters: Filters, arguments: Arguments, table: MemoryTable) -> str:
    """The WHERE clause's text for rows aliased `m`."""
    clauses = ["m.deleted_at IS NULL"]
    if filters.category is not None:
        clauses.append(f"m.category = {arguments.add(filters.category, 'text')}")
    if filters.tags:
        wanted = arguments.add(list(filters.tags), "text[]")
        clauses.append(f"EXISTS (SELECT FROM unnest(string_to_array(m.tags, ',')) t WHERE btrim(t) = ANY ({wanted}))")
    if filters.user_id is not None:
        # The API declares user_id as varchar, others as text: the comparison follows the column's type.
        kind = "text" if table.columns.get("user_id") == "text" else "varchar"
        clauses.append(f"m.user_id = {arguments.add(filters.user_id, kind)}")
    if filters.since is not None:
        clauses.append(f"m.created_at >= {arguments.add(filters.since, 'timestamptz')}")
    if filters.until is not None:
        clauses.append(f"m.created_at < {arguments.add(filters.until, 'timestamptz')}")
    return " AND ".join(clauses)
