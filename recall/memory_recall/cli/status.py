"""`memory status`: shows the state of the database, or of a MemoryIndex in a Kubernetes cluster."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from memory_recall.cli.output import JsonOption, emit, execute, show
from memory_recall.embedding.profiles import PROFILES, ModelProfile
from memory_recall.errors import ExitCode
from memory_recall.indexing.warming_sql import WarmingStatus, read_warming
from memory_recall.memory_index.client import Place, read
from memory_recall.memory_index.pipeline import Pipeline, pipeline
from memory_recall.memory_index.screen import screen
from memory_recall.postgres.connection import AnyConnection, opened
from memory_recall.schema.adoption.observations import TextObservation
from memory_recall.schema.adoption.observations_sql import looking, observe_database, observe_table, observe_texts
from memory_recall.schema.adoption.screen import language_lines
from memory_recall.schema.columns.text_search import KEPT_CASE, KEPT_CASE_REMEDY
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import describe
from memory_recall.schema.truncated import TruncatedTexts, list_truncated
from memory_recall.settings import Settings
from memory_recall.status import DatabaseFacts, inspect

KubeOption = Annotated[
    str | None, typer.Option("--kube", metavar="NAME", help="Show this MemoryIndex of a Kubernetes cluster instead.")
]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace of the MemoryIndex (that of the context).")
]
KubeconfigOption = Annotated[Path | None, typer.Option(help="Another kubeconfig than kubectl's.")]
ContextOption = Annotated[str | None, typer.Option(help="Another context than the current one.")]

TruncatedOption = Annotated[
    bool, typer.Option("--truncated", help="List the ids of the rows whose text is longer than the model's window.")
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, max=100_000, help="With --truncated: how many ids to list at most (1000).")
]
_LISTED = 1000


def register(app: typer.Typer) -> None:
    """Add `memory status` to the command line."""
    app.command("status")(status_command)


def status_command(  # noqa: PLR0917  (typer passes options by name)
    kube: KubeOption = None,
    namespace: NamespaceOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    truncated: TruncatedOption = False,
    limit: LimitOption = None,
    json: JsonOption = False,
) -> None:
    """Show counts of rows, the models, the vector index, the pgvector extension and the schema revision.

    Of a sample of the texts, the scripts are counted in the database; a line says how many are beyond the model.
    Another says where words of the search column are told apart by case, and what to do about it. It also says how far
    the sync worker has read ahead since the database server started. With --truncated, list instead the rows whose
    vector is that of a beginning of their text.

    With --kube, show instead which stages of a MemoryIndex are complete, what blocks it and what to do. The exit status
    is 0 if the MemoryIndex is Ready, 3 if the operator goes on by itself, and 4 if a person must act.

    Examples:
        memory status
        memory status --json | jq .rows.pending
        memory status --truncated
        memory status --kube claude-memory --namespace claude-memory
    """
    if kube is not None and truncated:
        raise typer.BadParameter("--truncated needs the database; leave --kube out.")
    if limit is not None and not truncated:
        raise typer.BadParameter("--limit needs --truncated.")
    if kube is not None:
        _show_memory_index(Place(kube, namespace, kubeconfig, context), as_json=json)
    elif namespace or kubeconfig or context:
        raise typer.BadParameter("--namespace, --kubeconfig and --context need --kube.")
    elif truncated:
        found = execute(lambda settings: _truncated(settings, limit or _LISTED), as_json=json)
        emit(dataclasses.asdict(found), as_json=json, title="Truncated texts")
    else:
        facts, texts, warming = execute(_status, as_json=json)
        model = PROFILES.get(facts.active_name or "")
        seen = {"texts": _described(texts, model), "warming": dataclasses.asdict(warming)}
        emit(dataclasses.asdict(facts) | seen, as_json=json, title="Memory index")
        if model and model.scripts and texts.beyond(model.scripts) and not json:
            show(language_lines(model, texts))
        if facts.words_keep_case and not json:
            show([f"{KEPT_CASE} {KEPT_CASE_REMEDY}"])


async def _truncated(settings: Settings, limit: int) -> TruncatedTexts:
    async with opened(settings.dsn(), "memory-status") as connection:
        return await list_truncated(connection, await require_schema(connection, settings.table), limit=limit)


async def _status(settings: Settings) -> tuple[DatabaseFacts, TextObservation, WarmingStatus]:
    async with opened(settings.dsn(), "memory-status") as connection:
        facts = await inspect(connection, settings.table, settings.column_names())
        readable = facts.table_exists and not facts.faults
        texts = await _observe_texts(connection, settings) if readable else TextObservation()
        return facts, texts, await read_warming(connection, settings.table)


async def _observe_texts(connection: AnyConnection, settings: Settings) -> TextObservation:
    table = await describe(connection, settings.table, settings.column_names())
    async with looking(connection):
        encoding = (await observe_database(connection)).encoding
        return await observe_texts(connection, table, await observe_table(connection, table), encoding, None)


def _described(texts: TextObservation, model: ModelProfile | None) -> Mapping[str, Any]:
    """Return what is shown of the sampled texts. `beyond_model` is None where the model's scripts are not known."""
    beyond = texts.beyond(model.scripts) if model and model.scripts else None
    return {"sampled": texts.texts, "scripts": texts.scripts, "beyond_model": beyond}


def _show_memory_index(place: Place, *, as_json: bool) -> None:
    async def observe(_: Settings) -> Pipeline:
        found = await read(place)
        return pipeline(found.resource, found.events)

    seen = execute(observe, as_json=as_json)
    if as_json:
        emit(dataclasses.asdict(seen), as_json=True)
    else:
        show(screen(seen))
    if not seen.ready:
        raise typer.Exit(ExitCode.NEEDS_PERSON if seen.stalled else ExitCode.WAITING)
