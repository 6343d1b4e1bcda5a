"""The outcome of the upgrade from one starting state, and the schema revision that the upgrade must reach."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory

from memory_bench.upgrade.contents import Contents
from memory_bench.upgrade.former import PRESENT
from tests.support.recalling.loop import RecallLoop

_SHOWN_FAULTS = 5


@dataclass
class Outcome:
    """The outcome of the upgrade from the starting state `start`; `problem` says why it failed, or is None."""

    start: str
    on_cluster: bool = False
    problem: str | None = None
    recalls: int = 0
    recall_errors: int = 0
    faults: list[str] = field(default_factory=list)
    rows_lost: int = 0
    vectors_lost: int = 0
    seconds: float = 0.0

    @property
    def reached_head(self) -> bool:
        """Whether the schema reached head and the checks at head succeeded."""
        return self.problem is None

    def count(self, loops: Sequence[RecallLoop], before: Contents, after: Contents) -> None:
        """Count the recalls and their faults, and the rows and vectors of `before` that are lost in `after`."""
        found = [fault for loop in loops for fault in loop.faults()]
        self.recalls, self.recall_errors = sum(len(loop.answers) for loop in loops), len(found)
        self.faults = found[:_SHOWN_FAULTS]
        self.rows_lost, self.vectors_lost = before.rows_lost_in(after), before.vectors_lost_in(after)


def head_revision(migrations: Path = PRESENT.directory / "migrations") -> str:
    """Return the latest schema revision of this checkout."""
    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    return str(ScriptDirectory.from_config(config).get_current_head())
