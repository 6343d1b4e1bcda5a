"""Runs the statements of the schema's revisions. It is separate from ddl.py, which must not import Alembic."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from alembic import context
from sqlalchemy.util import await_only

from memory_recall.schema.ddl import TableChanges


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

    def value(self, query: str) -> object:
        """Run a query of the catalog or of our own tables; return the first column of its first row, or None."""
        return await_only(self.changes.in_catalog(query.format_map(self.names)))

    def require_extension(self) -> None:
        """End the migration here if pgvector does not exist; what was run stays, and the revision is not recorded.

        Raises:
            ExtensionMissing: pgvector does not exist in this database.
        """
        self.changes.table.require_extension()


@contextmanager
def revision_steps(changes: TableChanges, names: Mapping[str, str]) -> Iterator[RevisionSteps]:
    """Yield the object that executes the statements of the revision that Alembic is running.

    Each statement is committed at once. A revision that is interrupted is run again.
    """
    with context.get_context().autocommit_block():
        await_only(changes.limit_waiting())
        yield RevisionSteps(changes, names)
