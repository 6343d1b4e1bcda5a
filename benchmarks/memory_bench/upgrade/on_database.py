"""Upgrades a database from one starting state to head with the commands that the operator's Jobs run.

Meanwhile the former and the present recall library recall from the database.
"""

import json
import random
import time
from contextlib import AsyncExitStack
from functools import partial

from memory_bench.upgrade.contents import QUERY, Contents, parse_contents
from memory_bench.upgrade.former import LAST_COMMIT, PRESENT
from memory_bench.upgrade.outcome import Outcome, head_revision
from memory_bench.upgrade.starts import StartingState, make
from memory_bench.upgrade.workshop import UpgradeEnvironment
from tests.support.invented import question
from tests.support.recalling.loop import SCRIPT, CommandFailed, RecallLoop

_ANSWERS = 10  # of each client, before and after the upgrade


async def upgrade_database(environment: UpgradeEnvironment, start: StartingState) -> Outcome:
    """Copy the database of the starting state, upgrade the copy to head, and return the outcome."""
    outcome = Outcome(start.name)
    began = time.monotonic()
    database = f"{start.name}-upgraded"
    try:
        await make(environment, start)
        await environment.create(database, template=start.name)
        await _upgrade(environment, start, database, outcome)
    except CommandFailed as error:
        outcome.problem = str(error)
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


async def _upgrade(environment: UpgradeEnvironment, start: StartingState, database: str, outcome: Outcome) -> None:
    variables = environment.variables(database, model=start.active)
    generator = random.Random(3)  # noqa: S311  (a benchmark's data, the same in every run)
    questions = [question(text, generator) for text in generator.sample(environment.texts, 20)]
    before = await _contents(environment, database)
    async with AsyncExitStack() as stack:
        loops = [
            await stack.enter_async_context(
                RecallLoop(which, partial(sources.python, str(SCRIPT), which, variables=variables), questions)
            )
            for sources, which in ((environment.former[LAST_COMMIT], "former"), (PRESENT, "present"))
        ]
        try:
            for loop in loops:
                await loop.wait_for_answers(_ANSWERS)
            await environment.create_extension(database)
            for arguments in (("migrate",), ("backfill",), ("index", "build")):
                await PRESENT.memory(*arguments, "--json", variables=variables)
            for loop in loops:
                await loop.wait_until_complete()
                await loop.wait_for_answers(_ANSWERS)
        finally:
            outcome.count(loops, before, await _contents(environment, database))
    outcome.problem = await _problem(environment, start, database)


async def _contents(environment: UpgradeEnvironment, database: str) -> Contents:
    async with environment.connection(database) as connection:
        return parse_contents(await connection.fetchval(QUERY))


async def _problem(environment: UpgradeEnvironment, start: StartingState, database: str) -> str | None:
    """Check a database that should be at head, and return what is wrong with it, or None if nothing is.

    The check also runs the former `memory backfill`, and `commands_at_head` if the starting state has such a command.
    """
    variables = environment.variables(database, model=start.active)
    status = json.loads(await PRESENT.memory("status", "--json", variables=variables))
    if status["schema_revision"] != head_revision():
        return f"The revision is {status['schema_revision']}, not {head_revision()}."
    if not status["index"]["valid"] or status["rows"]["pending"]:
        return f"The index or the rows are not complete: {status['index']}, {status['rows']}."
    await environment.execute(database, "INSERT INTO memories (content) VALUES ('written after the upgrade')")
    await environment.memory(LAST_COMMIT, database, "backfill", "--json", model=start.active)
    if start.commands_at_head:
        arguments = [one.format(**environment.urls) for one in start.commands_at_head]
        await PRESENT.memory(*arguments, "--json", variables=variables)
    return None
