"""The page of the columns of the user's table that are used, from the list that `memory migrate` compares with it."""

from docs.makers.markdown import code, document, table
from memory_recall.schema.columns.names import resource_name
from memory_recall.schema.columns.used import USED_COLUMNS, Need, UsedColumn

INTRODUCTION = """\
The columns of a table of memories that we use if they are there. `memory migrate` compares the table with this list
before it changes anything, names all faults in one message with the statements that mend them, and changes none of
these columns itself; `memory status` and the operator show the same faults.

A table may have other names for them: `MEMORY_COLUMNS` names them by the names of this page, as JSON, and
`spec.database.columns` by those in the second column. In place of a column of its own, a value may stand in one of type
`jsonb` or `json`, named as `payload->>'data'` or `payload->'meta'->>'user'`, where the sixth column has a type: a value
that cannot be read as that type is none. `content` may be a list of up to eight, which are joined by a blank line. An
empty text says that the table has no such column, where a table may lack it; that no row is sensitive is said with
`MEMORY_SENSITIVITY=none` or `spec.database.sensitivity: None` alone. [`memory adopt`](../adopt.md) proposes all of it.
`embedding` is our own column of vectors; `embedding: memory_embedding` leaves a column of that name to whoever uses it.
The first migration records the names. Others are refused from then on, until `memory migrate --to base` has removed
what was added."""
NEEDS = {Need.ALWAYS: "yes", Need.RECALL: "no", Need.OPTIONAL: "no"}
GENERATED = """\
A generated column of another kind than the last column says is refused: triggers keep vectors off sensitive rows, and
they run before Postgres computes a generated column."""


def page() -> str:
    """Return the page of the columns."""
    heads = ("column", "in the resource", "needed", "type", "what it is for", "at a path", "generated")
    return document("# Columns", INTRODUCTION, table(heads, [_row(used) for used in USED_COLUMNS]), GENERATED)


def _row(used: UsedColumn) -> tuple[str, ...]:
    types = ", ".join(code(kind) for kind in used.types)
    at_path = code(used.at_path) if used.at_path else "no"
    generated = " or ".join(used.generated) or "no"
    named = code(resource_name(used.name))
    return code(used.name), named, NEEDS[used.need], types, used.purpose, at_path, generated
