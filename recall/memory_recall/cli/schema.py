"""`memory migrate` and `memory index`: prepare the database for embedding and recall."""

import asyncio
import dataclasses
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from memory_recall.cli.output import JsonOption, emit, execute, shown
from memory_recall.embedding.profiles import PROFILES, ModelProfile
from memory_recall.errors import DimensionMismatch, InvalidConfiguration, MemoryIndexError
from memory_recall.hnsw.definition import inspect_index
from memory_recall.hnsw.repair import IndexParameters, build_index, check_and_repair
from memory_recall.postgres.connection import opened
from memory_recall.postgres.session import opened_session
from memory_recall.schema.claims_sql import TableClaim
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import describe
from memory_recall.settings import LOCK_SECONDS, MIGRATIONS, Settings

if TYPE_CHECKING:
    from memory_recall.schema.migrate import MigrationRequest  # Alembic is imported late

_PROGRESS_SECONDS = 1.0
ExistingVectorsChoice = Literal["refuse", "keep", "discard"]


def register(app: typer.Typer) -> None:
    """Add `memory migrate` and `memory index` to the command line."""
    group = typer.Typer(no_args_is_help=True, help="Build and check the vector index.")
    app.command("migrate")(migrate_command)
    group.command("build")(index_build_command)
    group.command("check")(index_check_command)
    app.add_typer(group, name="index")


def migrate_command(  # noqa: PLR0917  (typer passes options by name)
    to: Annotated[
        Literal["head", "base"],
        typer.Option(help="head: the last revision; base: remove what migrations added, the vector index too."),
    ] = "head",
    existing_vectors: Annotated[
        ExistingVectorsChoice | None,
        typer.Option(
            help="What to do with vectors that may be of another model or text: those that were there before, or of a "
            "table that was exchanged, restored alone, or without its trigger. "
            "discard also makes an empty column of other dimensions again."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm --to base, which removes all vectors.")] = False,
    claim: Annotated[
        str | None,
        typer.Option(help="Only if the table belongs to no other MemoryIndex than this one; the operator sets it."),
    ] = None,
    replaces: Annotated[
        str | None, typer.Option(help="End the claim of the MemoryIndex with this uid, which is gone for good.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Migrate the table of memories to the last revision, and restore its triggers and constraints where needed.

    Where the concept graph is enabled, its rules are restored too. The command may be run at any time, any number of
    times, and by several processes at once. If the extension pgvector does not exist, at most the table of memories is
    created, and the command ends with status 3; run it again once the extension exists. The vector index is not built
    here, but by memory index build.

    Examples:
        memory migrate
        memory migrate --existing-vectors discard --json
    """
    if to == "base" and not yes:
        raise typer.BadParameter("--to base removes every vector; confirm with --yes.")
    result = execute(lambda settings: _migrate(settings, to, existing_vectors, claim, replaces), as_json=json)
    emit(result, as_json=json, title="Schema")


def index_build_command(json: JsonOption = False) -> None:
    """Build the vector index without blocking readers or writers. An interrupted build is started again.

    The schema must be at the last revision (memory migrate), and the build is cheapest after the first backfill. If
    this command has built the index before with other parameters (m, ef_construction) than are configured now, a new
    index replaces the old index. Until then the old index serves recalls.

    Examples:
        memory index build
    """
    emit(execute(_build, as_json=json), as_json=json, title="Vector index")


def index_check_command(
    sample: Annotated[int, typer.Option(min=1, max=10_000, help="How many stored vectors to look up.")] = 50,
    repair_below: Annotated[
        float | None, typer.Option(min=0, max=1, help="Build the index anew if it finds a smaller share than this.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say whether the vector index is valid, and which share of the true nearest neighbours it finds.

    With --repair-below, an index that finds a smaller share is built anew by REINDEX CONCURRENTLY. The old index serves
    recalls until the new one is complete. The sync worker checks and repairs the index by itself once a day.

    Examples:
        memory index check --sample 200 --json
        memory index check --repair-below 0.9
    """
    result = execute(lambda settings: _check(settings, sample, repair_below), as_json=json)
    emit(result, as_json=json, title="Vector index")


def migration_request(
    settings: Settings,
    existing_vectors: ExistingVectorsChoice | None = None,
    claim: str | None = None,
    replaces: str | None = None,
) -> "MigrationRequest":
    """Return what to migrate by these settings.

    Raises:
        InvalidConfiguration: the model's dimensions are not known, or a column's name cannot be used.
        DimensionMismatch: the model has other dimensions than those that are set.
    """
    from memory_recall.schema.migrate import MigrationRequest

    known = PROFILES.get(settings.model)
    dimensions = settings.dimensions or (known.dimensions if known else None)
    if dimensions is None:
        raise InvalidConfiguration(
            f"There is no model profile {settings.model!r}, so its dimensions are not known.", "Set MEMORY_DIMENSIONS."
        )
    if known and not known.yields(dimensions):
        raise DimensionMismatch(
            f"Model {known.name} yields {known.choices} dimensions, not {dimensions}.",
            f"Set the dimensions to {known.choices}.",
        )
    return MigrationRequest(
        table=settings.table,
        model=dataclasses.replace(known, dimensions=dimensions) if known else ModelProfile(settings.model, dimensions),
        migrations=MIGRATIONS,
        existing_vectors=existing_vectors or "refuse",
        lock_seconds=LOCK_SECONDS,
        claim=TableClaim.from_json(claim) if claim else None,
        replaces=replaces,
        columns=settings.column_names(),
    )


async def _migrate(
    settings: Settings,
    to: Literal["head", "base"],
    existing_vectors: ExistingVectorsChoice | None,
    claim: str | None,
    replaces: str | None,
) -> dict[str, Any]:
    from memory_recall.schema.migrate import remove

    request = migration_request(settings, existing_vectors, claim, replaces)
    if to == "base":
        return dataclasses.asdict(await remove(settings.dsn(), request))
    return await run_migration(settings, request)


async def run_migration(settings: Settings, request: "MigrationRequest") -> dict[str, Any]:
    """Migrate a table to the last revision with the rules of its graph, and return what was done."""
    from memory_recall.graph import restore_graph
    from memory_recall.schema.migrate import migrate

    result = await migrate(settings.dsn(), request)
    await restore_graph(settings.dsn(), request.table, lock_seconds=LOCK_SECONDS)
    return dataclasses.asdict(result)


def _parameters(settings: Settings) -> IndexParameters:
    return IndexParameters(settings.index.m, settings.index.ef_construction)


async def _build(settings: Settings) -> dict[str, Any]:
    watcher = asyncio.create_task(_watch(settings))
    try:
        facts = await build_index(settings.dsn(), settings.table, _parameters(settings), lock_seconds=LOCK_SECONDS)
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError, MemoryIndexError):
            await watcher
    return {"name": facts.name, "valid": facts.valid, "m": facts.m, "ef_construction": facts.ef_construction}


async def _watch(settings: Settings) -> None:
    """Print the phase and the percentage of a running index build to standard error, until cancelled."""
    console = Console(stderr=True)
    async with opened(settings.dsn(), "memory-index-watch") as connection:
        table = await describe(connection, settings.table)
        with console.status("Preparing the index build"):
            last = None
            while True:
                progress = (await inspect_index(connection, table)).progress
                line = progress and f"{progress.phase} {100 * (progress.fraction or 0):.0f} %"
                if line and line != last:
                    console.print(shown(f"Index: {line}"))
                    last = line
                await asyncio.sleep(_PROGRESS_SECONDS)


async def _check(settings: Settings, sample: int, repair_below: float | None) -> dict[str, Any]:
    async with opened_session(settings.dsn(), "memory-index-check") as connection:
        table = await require_schema(connection, settings.table)
        report = await check_and_repair(
            connection, table, _parameters(settings), sample=sample, repair_below=repair_below
        )
    facts = report.facts
    return {
        "name": facts.name,
        "exists": facts.exists,
        "valid": facts.valid,
        "m": facts.m,
        "ef_construction": facts.ef_construction,
        "recall@10": report.recall,
        "sample": sample,
        "repaired": report.recall_after_repair is not None,
        "recall@10 after repair": report.recall_after_repair,
    }
