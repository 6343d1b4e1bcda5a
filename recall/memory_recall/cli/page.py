"""`memory page`: serves a page to this machine: try recalls, judge questions, look at the index."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory_recall.cli.output import JsonOption, announce_page, execute
from memory_recall.cli.questions import OutputOption, existing_labels, exported_file, opened_labeller, summarise_labels
from memory_recall.cli.reading import opened_recall
from memory_recall.cli.recall import EMBEDDING_BUDGET, search_scope
from memory_recall.contrib.labelling.label_file import LabelFile
from memory_recall.errors import importing_extra
from memory_recall.postgres.connection import opened
from memory_recall.search.sql.visibility import Everyone
from memory_recall.settings import Settings
from memory_recall.status import DatabaseFacts, inspect

if TYPE_CHECKING:
    from memory_recall.contrib.page.app import Views

_APPLICATION = "memory-page"
_CONNECTIONS = 4


def register(app: typer.Typer) -> None:
    """Add `memory page` to the command line."""
    app.command("page")(page_command)


def page_command(  # noqa: PLR0917  (typer passes options by name)
    labels: Annotated[
        Path | None, typer.Argument(metavar="LABELS", help="Judge the questions of this file, too.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Recall this user's memories.")] = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="Recall everybody's memories, the sensitive ones of --user included.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the page on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Try recalls, judge questions and look at the index, on a page in the browser of this machine.

    Of a tried recall you see each memory with its place, scores and relevance, and which are held back at a level that
    you choose. With LABELS, which memory questions collect makes, you also write questions for the drawn memories and
    judge what every leg and fusion finds; each answer is stored at once, so the command can be ended and started again.

    The page is served on 127.0.0.1, and its address with a random token is printed.

    Examples:
        memory page --user ana
        memory page labels.json --everyone
        memory page labels.json --everyone --port 8123 --output judged.jsonl
    """
    if output is not None and labels is None:
        raise typer.BadParameter("--output needs LABELS.")
    file = None if labels is None else existing_labels(labels, as_json=json)

    async def action(settings: Settings) -> int:
        with importing_extra("page", "The page"):
            from memory_recall.contrib.local_page.server import serve_locally
            from memory_recall.contrib.page.app import page_app

        async with _opened_views(settings, search_scope(user, everyone=everyone), file, output) as views:
            await serve_locally(lambda stop: page_app(views, stop=stop), port=port, announce=announce_page)
        return 0 if views.judging is None else views.judging.labeller.withdrawn

    withdrawn = execute(action, as_json=json)
    if file is not None:
        summarise_labels(file, withdrawn, as_json=json)


@asynccontextmanager
async def _opened_views(
    settings: Settings, user: str | Everyone, file: LabelFile | None, output: Path | None
) -> AsyncIterator["Views"]:
    """Open what the page shows: a recall, the state of the index and, with a file of labels, their judgement."""
    from memory_recall.contrib.page.app import Views
    from memory_recall.contrib.page.judging import Judging

    async def state() -> DatabaseFacts:
        async with opened(settings.dsn(), _APPLICATION) as connection:
            return await inspect(connection, settings.table, settings.column_names())

    async with AsyncExitStack() as closing:
        judging = None
        if file is not None:
            chosen = exported_file(file.path, output)
            labeller = await closing.enter_async_context(opened_labeller(settings, file, pooling=True))
            judging = Judging(labeller, chosen)
        recalling = opened_recall(settings, dense=True, embedding_budget=EMBEDDING_BUDGET, connections=_CONNECTIONS)
        recall, _ = await closing.enter_async_context(recalling)
        yield Views(recall, user, state, judging)
