"""Upgrades a database from one starting state to head with the commands that the operator's Jobs run, under recalls."""

import json
import random
import time
from dataclasses import dataclass, field
from functools import partial

from memory_bench.upgrade.contents import QUERY, Contents, parse_contents
from memory_bench.upgrade.environment import UpgradeEnvironment
from memory_bench.upgrade.states import StartingState
from memory_recall.schema.revisions import HEAD_REVISION
from tests.support.invented import question
from tests.support.recalling.loop import CommandFailed, RecallLoop

_ANSWERS = 10  # of each client, before and after the upgrade
_SHOWN_FAULTS = 5
_QUESTIONS = 20
_TEXTS = "SELECT array_agg(content ORDER BY id) FROM memories WHERE deleted_at IS NULL AND NOT is_sensitive"


@dataclass
class Outcome:
    """The outcome of the upgrade from the starting state `start`; `problem` says why it failed, or is None."""

    start: str
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


async def upgrade_database(environment: UpgradeEnvironment, state: StartingState) -> Outcome:
    """Restore the database of the starting state, upgrade it to head, and return the outcome."""
    outcome = Outcome(state.name)
    began = time.monotonic()
    await environment.restore(state)
    try:
        await _upgrade(environment, state.name, outcome)
        outcome.problem = await _problem(environment, state.name)
    except CommandFailed as error:
        outcome.problem = str(error)
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


async def _upgrade(environment: UpgradeEnvironment, database: str, outcome: Outcome) -> None:
    generator = random.Random(3)  # noqa: S311  (a benchmark's data, the same in every run)
    async with environment.connection(database) as connection:
        texts = await connection.fetchval(_TEXTS)
    questions = [question(generator.choice(texts), generator) for _ in range(_QUESTIONS)]
    before = await contents(environment, database)
    async with RecallLoop("present", partial(environment.spawn_recalls, database), questions) as loop:
        try:
            await loop.wait_for_answers(_ANSWERS)
            for arguments in (("migrate",), ("backfill",), ("index", "build")):
                await environment.memory(database, *arguments, "--json")
            await loop.wait_until_complete()
            await loop.wait_for_answers(_ANSWERS)
        finally:
            after = await contents(environment, database)
            found = loop.faults()
            outcome.recalls, outcome.recall_errors = len(loop.answers), len(found)
            outcome.faults = found[:_SHOWN_FAULTS]
            outcome.rows_lost, outcome.vectors_lost = before.rows_lost_in(after), before.vectors_lost_in(after)


async def contents(environment: UpgradeEnvironment, database: str) -> Contents:
    """Return the digests of the rows and vectors of a database."""
    async with environment.connection(database) as connection:
        return parse_contents(await connection.fetchval(QUERY))


async def _problem(environment: UpgradeEnvironment, database: str) -> str | None:
    """Check a database that should be at head, and return what is wrong with it, or None if nothing is."""
    async with environment.connection(database) as connection:
        await connection.execute("INSERT INTO memories (content) VALUES ('written after the upgrade')")
    await environment.memory(database, "backfill", "--json")
    status = json.loads(await environment.memory(database, "status", "--json"))
    if status["schema_revision"] != HEAD_REVISION or status["schema_differences"]:
        return f"The revision is {status['schema_revision']}, not {HEAD_REVISION}: {status['schema_differences']}."
    if not status["index"]["valid"] or status["rows"]["pending"]:
        return f"The index or the rows are not complete: {status['index']}, {status['rows']}."
    return None
