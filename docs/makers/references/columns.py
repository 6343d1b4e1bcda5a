"""The page of the columns of the user's table that are used, from the list that `memory migrate` compares with it."""

from docs.makers.markdown import code, document, table
from memory_recall.schema.columns.used import USED_COLUMNS, Need, UsedColumn

INTRODUCTION = """\
The columns of a table of memories that we use if they are there. `memory migrate` compares the table with this list
before it changes anything, names all faults in one message with the statements that mend them, and changes none of
these columns itself; `memory status` and the operator show the same faults."""
NEEDS = {Need.ALWAYS: "yes", Need.RECALL: "for recalls", Need.OPTIONAL: "no"}
GENERATED = """\
A generated column of another kind than the last column says is refused: triggers keep vectors off sensitive rows, and
they run before Postgres computes a generated column."""


def page() -> str:
    """Return the page of the columns."""
    heads = ("column", "needed", "type", "what it is for", "generated")
    return document("# Columns", INTRODUCTION, table(heads, [_row(used) for used in USED_COLUMNS]), GENERATED)


def _row(used: UsedColumn) -> tuple[str, str, str, str, str]:
    types = ", ".join(code(kind) for kind in used.types)
    return code(used.name), NEEDS[used.need], types, used.purpose, " or ".join(used.generated) or "no"
