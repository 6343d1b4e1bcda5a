"""The upgrade of one start to head: what the operator's Jobs would do, while both libraries recall."""

import json
import random
import time
from contextlib import AsyncExitStack
from functools import partial

from memory_bench.swap.load import question
from memory_bench.upgrade.contents import QUERY, Contents, contents_of
from memory_bench.upgrade.former import LAST_COMMIT, PRESENT, CommandFailed
from memory_bench.upgrade.outcome import Outcome, head_revision
from memory_bench.upgrade.recall_loop import SCRIPT, RecallLoop
from memory_bench.upgrade.starts import Start, make
from memory_bench.upgrade.workshop import Workshop

_ANSWERS = 10  # of each client, before and after the upgrade


async def upgrade_database(workshop: Workshop, start: Start) -> Outcome:
    """Copy the start's database and bring the copy to head."""
    outcome = Outcome(start.name)
    began = time.monotonic()
    database = f"{start.name}-upgraded"
    try:
        await make(workshop, start)
        await workshop.create(database, template=start.name)
        await _upgrade(workshop, start, database, outcome)
    except CommandFailed as error:
        outcome.problem = str(error)
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


async def _upgrade(workshop: Workshop, start: Start, database: str, outcome: Outcome) -> None:
    variables = workshop.variables(database, model=start.active)
    generator = random.Random(3)  # noqa: S311  (a benchmark's data, the same in every run)
    questions = [question(text, generator) for text in generator.sample(workshop.texts, 20)]
    before = await _contents(workshop, database)
    async with AsyncExitStack() as stack:
        loops = [
            await stack.enter_async_context(
                RecallLoop(which, partial(sources.python, str(SCRIPT), which, variables=variables), questions)
            )
            for sources, which in ((workshop.former[LAST_COMMIT], "former"), (PRESENT, "present"))
        ]
        try:
            for loop in loops:
                await loop.more(_ANSWERS)
            await workshop.create_extension(database)
            for arguments in (("migrate",), ("backfill",), ("index", "build")):
                await PRESENT.memory(*arguments, "--json", variables=variables)
            for loop in loops:
                await loop.until_complete()
                await loop.more(_ANSWERS)
        finally:
            outcome.count(loops, before, await _contents(workshop, database))
    outcome.problem = await _problem(workshop, start, database)


async def _contents(workshop: Workshop, database: str) -> Contents:
    async with workshop.connection(database) as connection:
        return contents_of(await connection.fetchval(QUERY))


async def _problem(workshop: Workshop, start: Start, database: str) -> str | None:
    """Return what is not as it should be at head: state, the former worker, the rest of a swap."""
    variables = workshop.variables(database, model=start.active)
    status = json.loads(await PRESENT.memory("status", "--json", variables=variables))
    if status["schema_revision"] != head_revision():
        return f"The revision is {status['schema_revision']}, not {head_revision()}."
    if not status["index"]["valid"] or status["rows"]["pending"]:
        return f"The index or the rows are not complete: {status['index']}, {status['rows']}."
    await workshop.execute(database, "INSERT INTO memories (content) VALUES ('written after the upgrade')")
    await workshop.memory(LAST_COMMIT, database, "backfill", "--json", model=start.active)
    if start.goes_on:
        arguments = [one.format(**workshop.urls) for one in start.goes_on]
        await PRESENT.memory(*arguments, "--json", variables=variables)
    return None
