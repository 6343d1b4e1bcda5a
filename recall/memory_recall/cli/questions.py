"""`memory questions`: labels questions about one's own memories, for `evaluate`, `tune` and the gate of a swap."""

import dataclasses
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from memory_recall.cli.output import JsonOption, emit, execute, progress_bar, show
from memory_recall.contrib.labelling.label_file import LabelFile
from memory_recall.errors import InvalidInput
from memory_recall.settings import Settings

if TYPE_CHECKING:
    from memory_recall.contrib.labelling.labeller import Labeller
    from memory_recall.contrib.labelling.store import PostgresStore

_APPLICATION = "memory-questions"
_CONNECTIONS = 4
_RECALL_SECONDS = 60.0

LabelsArgument = Annotated[Path, typer.Argument(metavar="LABELS", help="The file that holds the state of this work.")]
OutputOption = Annotated[
    Path | None, typer.Option(help="The file of judged questions (LABELS with the suffix .questions.jsonl).")
]


def register(app: typer.Typer) -> None:
    """Add `memory questions` to the command line."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Label questions about your own memories, and write them for evaluate, tune and swap.",
    )
    group.command("collect")(collect_command)
    group.command("judge")(judge_command)
    group.command("pool")(pool_command)
    group.command("export")(export_command)
    app.add_typer(group, name="questions")


def collect_command(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    labels: LabelsArgument,
    draw: Annotated[int, typer.Option(min=0, max=10_000, help="Draw that many memories to write questions for.")] = 0,
    user: Annotated[str | None, typer.Option(help="Draw from this user's memories.")] = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="Draw from everybody's memories.")] = False,
    import_: Annotated[
        Path | None, typer.Option("--import", help="Questions that you have, one JSON object a line, with a text.")
    ] = None,
    logged_queries: Annotated[
        Path | None, typer.Option(help="Recall requests that your API has logged, one JSON object a line.")
    ] = None,
    consent: Annotated[
        bool,
        typer.Option("--consent", help="The users who sent the logged queries agree that you read and judge them."),
    ] = False,
    sample: Annotated[int, typer.Option(min=1, max=10_000, help="How many logged queries to draw at most.")] = 50,
    stratum: Annotated[
        str | None, typer.Option(help="The kind of these questions (written, imported or logged).")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed draws the same memories and queries.")] = 0,
    json: JsonOption = False,
) -> None:
    """Add questions to LABELS: draw memories to write questions for, import questions, or draw logged queries.

    Sensitive and deleted memories are never drawn, and logged queries that are marked as sensitive are left out. A
    question that is collected twice is kept once.

    Examples:
        memory questions collect labels.json --draw 50 --everyone --stratum paraphrase
        memory questions collect labels.json --import questions.jsonl
        memory questions collect labels.json --logged-queries requests.jsonl --consent --sample 100
    """
    if not draw and import_ is None and logged_queries is None:
        raise typer.BadParameter("Give --draw, --import or --logged-queries.")
    if draw and (user is None) != everyone:
        raise typer.BadParameter("Say with --user or --everyone, but not both, whose memories are drawn.")
    if logged_queries is not None and not consent:
        raise typer.BadParameter(
            "Logged queries are what people have asked. Say --consent if those who sent them agree that you read them."
        )

    async def action(settings: Settings) -> dict[str, Any]:
        file = LabelFile(labels, seed=seed)
        counts: dict[str, Any] = {}
        if draw:
            counts["drawn"] = await _draw(settings, file, draw, seed=seed, user=user, stratum=stratum or "written")
        if import_ is not None:
            counts["imported"] = _import(file, import_, stratum=stratum or "imported")
        if logged_queries is not None:
            counts["logged"] = _import_log(file, logged_queries, sample, seed=seed, stratum=stratum or "logged")
        return counts | {"questions": len(file.labels.questions)}

    emit(execute(action, as_json=json), as_json=json, title="Questions")


def judge_command(labels: LabelsArgument, json: JsonOption = False) -> None:
    """Write questions for the drawn memories, and judge what every leg and fusion finds, in the terminal.

    It does not show which leg found a memory, nor its rank. Every answer is stored at once, so the command can be ended
    and started again at any time. memory page LABELS does the same in a browser.

    Examples:
        memory questions judge labels.json
    """
    file = existing_labels(labels, as_json=json)

    async def action(settings: Settings) -> int:
        from memory_recall.contrib.labelling.terminal import label_in_terminal

        async with opened_labeller(settings, file, pooling=True) as labeller:
            await label_in_terminal(labeller, read=sys.stdin.readline, show=lambda line: show([line], to_stderr=True))
            return labeller.withdrawn

    summarise_labels(file, execute(action, as_json=json), as_json=json)


def pool_command(labels: LabelsArgument, json: JsonOption = False) -> None:
    """Search for every question again, and add what the legs and fusions find to its pool.

    A pool that only one model has filled favours that model. To compare two models, run this command with each of them
    active, and judge the added memories.

    Examples:
        memory questions pool labels.json
    """
    file = existing_labels(labels, as_json=json)

    async def action(settings: Settings) -> dict[str, Any]:
        async with opened_labeller(settings, file, pooling=True) as labeller:
            with progress_bar() as bar:
                task = bar.add_task("Pooling", total=len(file.labels.questions))
                added = await labeller.pool_all(progress=lambda: bar.advance(task))
        return {"questions": len(file.labels.questions), "added": added, "withdrawn": labeller.withdrawn}

    emit(execute(action, as_json=json), as_json=json, title="Pools")


def export_command(labels: LabelsArgument, output: OutputOption = None, json: JsonOption = False) -> None:
    """Write the judged questions to a file, and print how well the two judgements of the same memories agree.

    A memory of grade 2 or 3 is relevant. Questions without a relevant memory are left out and counted. A question that
    was written for a memory is removed if the memory is sensitive or deleted by now. The file is readable by its owner
    alone, and replaced if it exists.

    Examples:
        memory questions export labels.json
        memory questions export labels.json --output questions.jsonl
    """
    file = existing_labels(labels, as_json=json)

    async def action(settings: Settings) -> int:
        from memory_recall.contrib.labelling.export import as_json_lines, exported_questions
        from memory_recall.private_file import write_private_file

        chosen = exported_file(labels, output)
        async with opened_labeller(settings, file, pooling=False) as labeller:
            await labeller.withdraw_hidden()
        write_private_file(chosen, as_json_lines(exported_questions(file.labels)))
        return labeller.withdrawn

    summarise_labels(file, execute(action, as_json=json), as_json=json)


def existing_labels(labels: Path, *, as_json: bool) -> LabelFile:
    """Open the file that holds the questions and judgements, which must exist.

    Raises:
        typer.Exit: it does not exist or cannot be read; the error has been reported.
    """

    async def action(_: Settings) -> LabelFile:
        file = LabelFile(labels)
        if not file.exists:
            raise InvalidInput(f"There is no file {labels}.", "Make it with memory questions collect.")
        return file

    return execute(action, as_json=as_json)


def exported_file(labels: Path, output: Path | None) -> Path:
    """Return the file to write judged questions to.

    Raises:
        InvalidInput: the output is the file of the labels, which an export would replace.
    """
    chosen = output or labels.with_suffix(".questions.jsonl")
    if chosen.resolve() == labels.resolve():
        raise InvalidInput(f"{chosen} holds the labels.", "Name another --output.")
    return chosen


def summarise_labels(file: LabelFile, withdrawn: int, *, as_json: bool) -> None:
    """Print what has been judged so far, how well the two judgements of the same memories agree, and what was removed.

    `withdrawn` is the number of questions that were removed because of their memories or their user.
    """
    from memory_recall.contrib.labelling.export import summarise

    summary = dataclasses.asdict(summarise(file.labels)) | {"withdrawn": withdrawn}
    warnings = [] if as_json else summary.pop("warnings")
    emit(summary, as_json=as_json, title="Labels")
    if warnings:
        show(warnings, to_stderr=True)


async def _draw(settings: Settings, file: LabelFile, count: int, *, seed: int, user: str | None, stratum: str) -> int:
    from memory_recall.contrib.labelling.belonging import require_origin
    from memory_recall.contrib.labelling.labels import Drawn

    async with opened_store(settings, pooling=False) as store:
        await require_origin(file, store)
        ids = await store.draw(count, seed=seed, user=user, without=file.labels.drawn)
    file.save(file.labels.after(Drawn(memory_ids=ids, stratum=stratum, conv=user)))
    return len(ids)


def _import(file: LabelFile, source: Path, *, stratum: str) -> dict[str, int]:
    from memory_recall.contrib.labelling.collecting import imported, lines_of

    found = imported(file.labels, lines_of(source), stratum=stratum)
    file.save(file.labels.after(*found.questions))
    return {"added": len(found.questions), "repeated": found.repeated}


def _import_log(file: LabelFile, source: Path, sample: int, *, seed: int, stratum: str) -> dict[str, int]:
    from memory_recall.contrib.labelling.collecting import lines_of, logged

    found = logged(file.labels, lines_of(source), stratum=stratum, sample=sample, seed=seed)
    file.save(file.labels.after(*found.questions))
    return {"added": len(found.questions), "repeated": found.repeated, "sensitive": found.sensitive}


@asynccontextmanager
async def opened_labeller(settings: Settings, file: LabelFile, *, pooling: bool) -> AsyncIterator["Labeller"]:
    """Open a labeller of the memories in the database, as `opened_store` does, if the labels belong to them.

    Raises:
        InvalidInput: the labels belong to another table or database.
    """
    from memory_recall.contrib.labelling.belonging import require_origin
    from memory_recall.contrib.labelling.labeller import Labeller

    async with opened_store(settings, pooling=pooling) as store:
        await require_origin(file, store)
        yield Labeller(file, store)


@asynccontextmanager
async def opened_store(settings: Settings, *, pooling: bool) -> AsyncIterator["PostgresStore"]:
    """Open a store of the memories in the database; with `pooling`, it also has both lexical legs and the embedder."""
    from memory_recall.contrib.labelling.store import PostgresStore
    from memory_recall.indexing.embedders import query_embedder
    from memory_recall.postgres.connection import create_pool, opened
    from memory_recall.schema.requirements.reading import require_every_row
    from memory_recall.schema.requirements.used_columns import require_columns
    from memory_recall.schema.table import describe
    from memory_recall.search.hybrid_recall import HybridRecall
    from memory_recall.search.options import RecallOptions
    from memory_recall.search.query import Lexical

    async with AsyncExitStack() as closing:
        async with opened(settings.dsn(), _APPLICATION) as connection:
            table = await describe(connection, settings.table)
            table.require_exists()
            require_columns(table)
            await require_every_row(connection, table)
        pool = await create_pool(settings.dsn(), min_size=1, max_size=_CONNECTIONS, application_name=_APPLICATION)
        closing.push_async_callback(pool.close)
        embedder = query_embedder(settings) if pooling else None
        if embedder is not None:
            closing.push_async_callback(embedder.close)
        legs = [
            HybridRecall(pool, None, RecallOptions(settings.table, lexical, time_budget=_RECALL_SECONDS))
            for lexical in get_args(Lexical)
        ]
        for leg in legs:
            closing.push_async_callback(leg.close)
        yield PostgresStore(pool, table, legs, embedder)
