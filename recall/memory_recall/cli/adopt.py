"""`memory adopt`: looks at a table of another program, and says how it is searched by meaning as it is."""

import dataclasses
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from memory_recall.cli.output import JsonOption, emit, execute, show, validation_message
from memory_recall.cli.schema import ExistingVectorsChoice, migration_request, run_migration
from memory_recall.errors import ExitCode, InvalidConfiguration
from memory_recall.postgres.connection import opened
from memory_recall.schema.adoption.fillfactor import set_fillfactor
from memory_recall.schema.adoption.plan import AdoptionPlan, AdoptionRequest, plan_adoption
from memory_recall.schema.adoption.screen import adoption_object, adoption_screen
from memory_recall.schema.adoption.settings_output import export_lines
from memory_recall.settings import LOCK_SECONDS, Settings, TableName


def register(app: typer.Typer) -> None:
    """Add `memory adopt` to the command line."""
    app.command("adopt")(adopt_command)


def adopt_command(  # noqa: PLR0917  (typer passes options by name)
    table: Annotated[str, typer.Argument(help="The table, with or without its schema.")],
    content: Annotated[
        list[str] | None,
        typer.Option(help="Column or path of the text; several are joined by a blank line."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SOURCE",
            help="What is used for a column, by our name for it: user_id=owner, or user_id=\"payload->>'user'\". "
            "Without a source, nothing is.",
        ),
    ] = None,
    no_sensitive: Annotated[
        bool, typer.Option("--no-sensitive", help="Say that no row of the table is secret.")
    ] = False,
    fillfactor: Annotated[
        int | None,
        typer.Option(min=10, max=100, help="Fill pages so far, in percent; --apply sets it before it migrates."),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Run memory migrate with what is proposed.")] = False,
    existing_vectors: Annotated[
        ExistingVectorsChoice | None,
        typer.Option(help="With --apply, what becomes of vectors that are there, as memory migrate has it."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Look at a table before anything is changed: what is used for what, what is missing, what it costs.

    Prints one screen with the settings and the MemoryIndex for the table, and with the statements that it needs first.
    MEMORY_COLUMNS and MEMORY_SENSITIVITY are where it starts from; the options win. No text leaves the database: of a
    sample of rows, lengths and scripts are counted there. The exit status is 4 while a person has to decide or to mend
    something.

    Examples:
        memory adopt notes
        memory adopt app.notes --content title --content body --no-sensitive
        memory adopt facts --column user_id=owner --column tags= --apply --fillfactor 85
    """
    plan, applied = execute(
        lambda settings: _adopt(
            _configured(settings, table, no_sensitive=no_sensitive),
            _given(content or [], column or []),
            fillfactor,
            existing_vectors,
            apply=apply,
        ),
        as_json=json,
    )
    if json:
        emit({**adoption_object(plan), "applied": applied}, as_json=True)
    elif applied is None:
        show(adoption_screen(plan))
    else:
        emit(applied, as_json=False, title="Schema")
        show([*export_lines(plan), "Next: memory backfill, memory index build, and memory sync, which goes on."])
    if not plan.adoptable:
        raise typer.Exit(ExitCode.NEEDS_PERSON)


def _configured(settings: Settings, table: str, *, no_sensitive: bool) -> Settings:
    """Return the settings for this table.

    Raises:
        InvalidConfiguration: the table's name cannot be used.
    """
    try:
        name = TypeAdapter(TableName).validate_python(table)
    except ValidationError as error:
        problem = validation_message(error.errors()[0]["msg"])
        raise InvalidConfiguration(
            f"The table {problem}.", "Write the names as they are, such as Team.Notes."
        ) from None
    changes: dict[str, Any] = {"table": name} | ({"sensitivity": "none"} if no_sensitive else {})
    return settings.model_copy(update=changes)


def _given(content: list[str], columns: list[str]) -> dict[str, list[str]]:
    """Return the sources that the options name, by our names of the columns.

    Raises:
        InvalidConfiguration: an option is not NAME=SOURCE, or names a column that another one names.
    """
    given = {"content": content} if content else {}
    for option in columns:
        name, separator, source = option.partition("=")
        if not separator or name in given:
            raise InvalidConfiguration(
                f"--column {option} cannot be used.", "Write NAME=SOURCE, such as user_id=owner, once for each column."
            )
        given[name] = [source]
    return given


async def _adopt(
    settings: Settings,
    given: dict[str, list[str]],
    fillfactor: int | None,
    existing_vectors: ExistingVectorsChoice | None,
    *,
    apply: bool,
) -> tuple[AdoptionPlan, dict[str, Any] | None]:
    """Return the plan, and the result of the migration if it was to be applied."""
    request = AdoptionRequest(
        table=settings.table,
        given={**(settings.columns or {}), **given},
        all_public=settings.sensitivity == "none",
        model=migration_request(settings).model,
        m=settings.index.m,
        text_search_configuration=settings.text_search_configuration,
        fillfactor=fillfactor,
    )
    async with opened(settings.dsn(), "memory-adopt") as connection:
        plan = await plan_adoption(connection, request)
    return plan, await _apply(settings, plan, existing_vectors) if apply else None


async def _apply(
    settings: Settings, plan: AdoptionPlan, existing_vectors: ExistingVectorsChoice | None
) -> dict[str, Any]:
    plan.require_decided()
    if plan.request.fillfactor is not None:
        await set_fillfactor(settings.dsn(), plan.request.table, plan.request.fillfactor, LOCK_SECONDS)
    request = dataclasses.replace(migration_request(settings, existing_vectors), columns=plan.names)
    return await run_migration(settings, request)
