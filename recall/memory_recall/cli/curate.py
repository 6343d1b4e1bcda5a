"""`memory curate`: memories that newer ones say again or replace, proposed, applied on consent, and undone."""

import dataclasses
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory_recall.cli.output import JsonOption, emit, execute, progress_bar, show
from memory_recall.cli.recall import ModelKeyOption, ModelNameOption
from memory_recall.contrib.curation.judging import MOST_PAIRS
from memory_recall.settings import Settings

if TYPE_CHECKING:
    from memory_recall.contrib.curation.judging import Judging, JudgingModel
    from memory_recall.contrib.curation.proposal_file import Proposal
    from memory_recall.postgres.connection import Connection
    from memory_recall.schema.table import MemoryTable

_OF_JUDGING = ("judged", "unusable", "not_judged", "left_out")
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The file of proposals.")]


def register(app: typer.Typer) -> None:
    """Add `memory curate` to the command line."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Find memories that newer ones say again or replace, and let recalls put the newer ones first.",
    )
    group.command("find")(find_command)
    group.command("apply")(apply_command)
    group.command("undo")(undo_command)
    group.command("log")(log_command)
    app.add_typer(group, name="curate")


def find_command(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    file: FileArgument,
    user: Annotated[str | None, typer.Option(help="Read this user's memories.")] = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="Read everybody's memories, and compare each with its owner's.")
    ] = False,
    since: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Judge only memories since this day (UTC).")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Also ask the language model at this address about the best pairs."),
    ] = None,
    judge_model: ModelNameOption = "default",
    judge_key_file: ModelKeyOption = None,
    judge_most: Annotated[
        int, typer.Option(min=1, max=10_000, help="The language model is asked about at most so many pairs.")
    ] = MOST_PAIRS,
    json: JsonOption = False,
) -> None:
    """Write proposals to a new FILE that you alone may read. Nothing in the database is changed.

    Sensitive, deleted and superseded memories are not read. Read the file, and remove the lines that you refuse.

    With --judge, a language model is sent both texts of a pair and their dates, and says whether the newer memory makes
    the older one unnecessary. How sure it is changes the pair's score.

    Examples:
        memory curate find proposals.jsonl --user ana
        memory curate find proposals.jsonl --everyone --since 2026-01-01
        memory curate find proposals.jsonl --user ana --judge http://llm:8080 --judge-model qwen2.5
    """
    if (user is None) != everyone:
        raise typer.BadParameter("Say with --user or --everyone, but not both, whose memories are read.")

    async def action(settings: Settings) -> dict[str, Any]:
        from memory_recall.contrib.chat_client import ChatClient
        from memory_recall.contrib.curation.decisions import Action
        from memory_recall.contrib.curation.proposal_file import proposal_from, require_new_file, write_proposals

        require_new_file(file)
        day = None if since is None else since.replace(tzinfo=UTC)
        how: dict[str, int] = {}
        if judge is None:
            proposals, left_out = await _find(settings, user, day)
        else:
            async with ChatClient(judge, judge_model, judge_key_file, query_egress=settings.may_leave_cluster) as model:
                judging, left_out = await _find_judged(settings, user, day, model, judge_most)
            proposals = [proposal_from(one) for one in judging.judgements]
            how = {name: getattr(judging, name) for name in _OF_JUDGING}
        written = write_proposals(file, proposals)
        counts: dict[str, Any] = Counter(one.action.value for one in written)
        skipped = {"not_written": len(proposals) - len(written), "too_long": left_out}
        return {one.value: counts[one.value] for one in Action} | how | skipped | {"file": str(file)}

    emit(execute(action, as_json=json), as_json=json, title="Proposals")


async def _find(settings: Settings, user: str | None, since: datetime | None) -> "tuple[list[Proposal], int]":
    from memory_recall.contrib.curation.finding import find_proposals, too_long

    async with _opened_table(settings) as (connection, table):
        proposals = await find_proposals(connection, table, user=user, since=since)
        return proposals, await too_long(connection, table, user=user)


async def _find_judged(
    settings: Settings, user: str | None, since: datetime | None, model: "JudgingModel", most: int
) -> "tuple[Judging, int]":
    from memory_recall.contrib.curation.finding import find_judged, too_long

    async with _opened_table(settings) as (connection, table):
        with progress_bar() as bar:
            task = bar.add_task("Judging", total=None)
            judging = await find_judged(
                connection, table, model, user=user, since=since, most=most,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )  # fmt: skip
        return judging, await too_long(connection, table, user=user)


def apply_command(
    file: FileArgument,
    consent: Annotated[
        bool, typer.Option("--consent", help="Apply them; without this, they are only counted.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Mark the older memories of the proposals UPDATE and SUPERSEDE in FILE as superseded, if you say --consent.

    A memory is never changed or deleted. The run is recorded, and `memory curate undo` undoes it.

    Examples:
        memory curate apply proposals.jsonl
        memory curate apply proposals.jsonl --consent
    """

    async def action(settings: Settings) -> dict[str, Any]:
        from memory_recall.contrib.curation.decisions import APPLIED
        from memory_recall.contrib.curation.journal_sql import apply_proposals
        from memory_recall.contrib.curation.proposal_file import read_proposals

        proposals = read_proposals(file)
        if not consent:
            return {"to_apply": sum(one.action in APPLIED for one in proposals), "applied": 0}
        async with _opened_table(settings) as (connection, table):
            return dataclasses.asdict(await apply_proposals(connection, table, proposals))

    result = execute(action, as_json=json)
    emit(result, as_json=json, title="Curation")
    if not consent and not json:
        show(["Nothing was changed. Say --consent to apply them."])


def undo_command(
    run: Annotated[int | None, typer.Option(min=1, help="Undo this run instead of the last one.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Undo every run.")] = False,
    json: JsonOption = False,
) -> None:
    """Undo the last run that was applied: its memories stand as before.

    Examples:
        memory curate undo
        memory curate undo --all
    """
    if run is not None and everything:
        raise typer.BadParameter("Say --run or --all, but not both.")

    async def action(settings: Settings) -> dict[str, Any]:
        from memory_recall.contrib.curation.journal_sql import undo

        async with _opened_table(settings) as (connection, table):
            return {"undone": await undo(connection, table, run=run, everything=everything)}

    emit(execute(action, as_json=json), as_json=json, title="Curation")


def log_command(json: JsonOption = False) -> None:
    """List the marks and when they ended, newest first: ids and times, no texts.

    A mark ends when it is undone, or with one of its texts: when a memory is edited, marked sensitive or deleted.

    Examples:
        memory curate log
    """

    async def action(settings: Settings) -> list[dict[str, Any]]:
        from memory_recall.contrib.curation.journal_sql import steps

        async with _opened_table(settings) as (connection, table):
            return [dataclasses.asdict(one) for one in await steps(connection, table)]

    found = execute(action, as_json=json)
    if json:
        emit({"steps": found}, as_json=True)
        return
    show(_line(one) for one in found)


def _line(step: dict[str, Any]) -> str:
    ended = f", ended {step['undone_at']:%Y-%m-%d %H:%M}" if step["undone_at"] else ""
    return (
        f"run {step['run']}: {step['action']}, {step['id']} is superseded by {step['superseded_by']},"
        f" {step['applied_at']:%Y-%m-%d %H:%M}{ended}"
    )


@asynccontextmanager
async def _opened_table(settings: Settings) -> AsyncIterator[tuple["Connection", "MemoryTable"]]:
    """Open a connection, and describe the table, whose migrations must all have run."""
    from memory_recall.postgres.connection import opened
    from memory_recall.schema.revisions import require_schema

    async with opened(settings.dsn(), "memory-curate") as connection:
        yield connection, await require_schema(connection, settings.table)
