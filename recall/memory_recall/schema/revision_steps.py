"""Runs the statements of the schema's revisions. It is separate from ddl.py, which must not import Alembic."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from alembic import context
from sqlalchemy.util import await_only

from memory_recall.schema.ddl import TableChanges
from memory_recall.schema.names import index_name


@dataclass(frozen=True)
class RevisionSteps:
    """Runs the statements of one revision after filling in placeholders such as `{table}`.

    Published revisions never change, so these methods and the placeholders keep their names and meaning. The methods
    are synchronous because Alembic's code is; they wait on the event loop for each statement.
    """

    changes: TableChanges
    names: Mapping[str, str]

    def run(self, statement: str) -> int:
        """Run one statement that holds its lock only for a moment; return how many rows it changed."""
        return await_only(self.changes.run(statement.format_map(self.names)))

    def run_together(self, statements: list[str]) -> None:
        """Run statements that hold their locks only for a moment, all of them in one transaction."""
        await_only(self.changes.run_together([statement.format_map(self.names) for statement in statements]))

    def value(self, query: str) -> object:
        """Run a query; return the first column of its first row, or None if there are no rows."""
        return await_only(self.changes.value(query.format_map(self.names)))

    def repeat_until_done(self, statement: str) -> None:
        """Run an update of a limited number of rows again and again, until it changes no row."""
        await_only(self.changes.repeat_until_done(statement.format_map(self.names)))

    def build_index(self, name: str, definition: str) -> None:
        """Create an index without blocking writers; `name` is given without quotes."""
        await_only(self.changes.build_index(self._index(name), definition.format_map(self.names)))

    def _index(self, name: str) -> str:
        """Return the name of an index that a revision calls `idx_{name}_` and what it is for."""
        return index_name(self.changes.table.name, name.removeprefix("idx_{name}_"))


@contextmanager
def revision_steps(changes: TableChanges, names: Mapping[str, str]) -> Iterator[RevisionSteps]:
    """Yield the object that executes the statements of the revision that Alembic is running.

    Each statement is committed at once. A revision that is interrupted is run again.
    """
    with context.get_context().autocommit_block():
        await_only(changes.limit_waiting())
        yield RevisionSteps(changes, names)
