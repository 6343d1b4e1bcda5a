"""`memory graph`: enables and disables the concept graph, and shows what is in it."""

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory_recall.cli.output import JsonOption, emit, execute, progress_bar, show
from memory_recall.settings import LOCK_SECONDS, Settings

if TYPE_CHECKING:
    from memory_recall.graph.neighbourhood import Neighbourhood
    from memory_recall.postgres.connection import AnyConnection
    from memory_recall.schema.table import MemoryTable


def register(app: typer.Typer) -> None:
    """Add `memory graph` to the command line."""
    group = typer.Typer(no_args_is_help=True, help="The concept graph: which memories share a name or a term.")
    group.command("enable")(enable_command)
    group.command("disable")(disable_command)
    group.command("status")(status_command)
    group.command("show")(show_command)
    app.add_typer(group, name="graph")


def enable_command(
    fill: Annotated[
        bool, typer.Option("--fill", help="Fill the graph here and now, for a table without a running memory sync.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Create the concept graph's tables and rules, and queue every memory; memory sync then fills the graph.

    Run it again at any time: it restores what is missing of the graph, and changes nothing if all is in place. Recalls
    use the graph once every memory has been read.

    Examples:
        memory graph enable
        memory graph enable --fill
    """
    result = execute(lambda settings: _enable(settings, fill=fill), as_json=json)
    emit(result, as_json=json, title="Concept graph")


def disable_command(
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the tables, and the rules that remove links from them.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Drop the concept graph's tables and rules, or with --keep only end its use.

    No memory changes, and enabling makes the graph anew. In a graph that is kept no link outlives its memory, nothing
    is added, and no recall uses it.

    Examples:
        memory graph disable
        memory graph disable --keep
    """
    result = execute(lambda settings: _disable(settings, keep=keep), as_json=json)
    emit(result, as_json=json, title="Concept graph")


def status_command(json: JsonOption = False) -> None:
    """Say whether the graph is enabled and filled, how much is in it, and which of its rules are missing.

    Examples:
        memory graph status
        memory graph status --json
    """
    emit(execute(_status, as_json=json), as_json=json, title="Concept graph")


def show_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A concept, such as a name or a word.")],
    user: Annotated[str | None, typer.Option(help="Look among this user's memories.")] = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="Look among everybody's memories.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the memories that have a concept, newest first, and the other concepts that several of them have.

    Sensitive and deleted memories are never shown.

    Examples:
        memory graph show kestrel --user ana
        memory graph show "kestrel lane" --everyone --json
    """
    if (user is None) != everyone:
        raise typer.BadParameter("Say with --user or --everyone, but not both, whose memories are shown.")

    async def action(settings: Settings) -> "Neighbourhood":
        from memory_recall.graph.neighbourhood import read_neighbourhood
        from memory_recall.postgres.connection import opened
        from memory_recall.schema.table import describe

        async with opened(settings.dsn(), "memory-graph-show") as connection:
            table = await describe(connection, settings.table)
            return await read_neighbourhood(connection, table, name, user=user)

    found = execute(action, as_json=json)
    if json:
        emit(dataclasses.asdict(found), as_json=True)
        return
    more = " or more" if found.more else ""
    show(
        [
            f"{found.concept}: {found.memories} memories{more}",
            *(f"  {one.id}: {one.content}" for one in found.newest),
            *(["Concepts that they share:"] if found.shared else []),
            *(f"  {one.concept}: {one.memories}" for one in found.shared),
        ]
    )


async def _enable(settings: Settings, *, fill: bool) -> dict[str, Any]:
    from memory_recall.graph import enable
    from memory_recall.postgres.connection import opened
    from memory_recall.schema.revisions import require_schema
    from memory_recall.schema.table_locks import Work, locked_session

    with progress_bar() as bar:
        queueing = bar.add_task("Queueing memories", total=None)
        async with locked_session(settings.dsn(), settings.table, LOCK_SECONDS, Work.CHANGE) as connection:
            table = await require_schema(connection, settings.table)
            changed = await enable(
                connection,
                table,
                lock_seconds=LOCK_SECONDS,
                queued=lambda count: bar.update(queueing, completed=count, total=count),
            )
    if fill:
        await _fill(settings, table)
    async with opened(settings.dsn(), "memory-graph-status") as connection:
        return {"changed": changed} | await _state(connection, table)


async def _fill(settings: Settings, table: "MemoryTable") -> None:
    """Deal with the changes in the queue until none is left that no other worker has taken."""
    from memory_recall.graph import graph_state
    from memory_recall.graph.filling import fill_pass
    from memory_recall.postgres.connection import opened

    with progress_bar() as bar:
        async with opened(settings.dsn(), "memory-graph-fill") as connection:
            pending = (await graph_state(connection, table)).pending
            filling = bar.add_task("Filling the concept graph", total=pending)
            done = 0
            more = True
            while more:
                result = await fill_pass(connection, table, asyncio.Event())
                done, more = done + result.handled, result.more
                bar.update(filling, completed=done, total=max(done, pending))


async def _disable(settings: Settings, *, keep: bool) -> dict[str, Any]:
    from memory_recall.graph import disable, pause
    from memory_recall.schema.table import describe
    from memory_recall.schema.table_locks import Work, locked_session

    async with locked_session(settings.dsn(), settings.table, LOCK_SECONDS, Work.CHANGE) as connection:
        table = await describe(connection, settings.table)
        table.require_exists()
        await (pause if keep else disable)(connection, table, lock_seconds=LOCK_SECONDS)
        return await _state(connection, table)


async def _status(settings: Settings) -> dict[str, Any]:
    from memory_recall.postgres.connection import opened
    from memory_recall.schema.table import describe

    async with opened(settings.dsn(), "memory-graph-status") as connection:
        table = await describe(connection, settings.table)
        table.require_exists()
        return await _state(connection, table)


async def _state(connection: "AnyConnection", table: "MemoryTable") -> dict[str, Any]:
    from memory_recall.graph import graph_state

    return dataclasses.asdict(await graph_state(connection, table))
