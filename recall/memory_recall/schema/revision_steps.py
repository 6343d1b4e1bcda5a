"""The steps that revisions of the schema run; not in ddl.py, which must not import Alembic."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from alembic import context
from sqlalchemy.util import await_only

from memory_recall.schema.ddl import TableChanges


@dataclass(frozen=True)
class RevisionSteps:
    """The statements of one revision, which names what it changes by placeholders such as `{table}`.

    Revisions are frozen, so these methods and the placeholders keep their names and meaning. Alembic's code is
    synchronous but runs on the event loop; each statement is awaited from there.
    """

    changes: TableChanges
    names: Mapping[str, str]

    def run(self, statement: str) -> int:
        """Run one statement that needs its lock only for a moment; returns how many rows it changed."""
        return await_only(self.changes.run(statement.format_map(self.names)))

    def run_together(self, statements: list[str]) -> None:
        """Run statements that need their lock only for a moment, all of them or none."""
        await_only(self.changes.run_together([statement.format_map(self.names) for statement in statements]))

    def value(self, query: str) -> object:
        """Return the first column of the first row, None without rows."""
        return await_only(self.changes.value(query.format_map(self.names)))

    def repeat_until_done(self, statement: str) -> None:
        """Repeat a batch update until it changes nothing."""
        await_only(self.changes.repeat_until_done(statement.format_map(self.names)))

    def build_index(self, name: str, definition: str) -> None:
        """Create an index without blocking writers; `name` is not quoted."""
        index = name.replace("{name}", self.changes.table.name)
        await_only(self.changes.build_index(index, definition.format_map(self.names)))

    def drop_index(self, name: str) -> None:
        """Drop an index without blocking writers; `name` is not quoted."""
        await_only(self.changes.drop_index(name.replace("{name}", self.changes.table.name)))


@contextmanager
def revision_steps(changes: TableChanges, names: Mapping[str, str]) -> Iterator[RevisionSteps]:
    """Give the current revision its steps; each commits at once, so an interrupted revision is run again."""
    with context.get_context().autocommit_block():
        await_only(changes.limit_waiting())
        yield RevisionSteps(changes, names)
