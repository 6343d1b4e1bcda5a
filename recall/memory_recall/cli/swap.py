"""`memory swap`: replaces the embedding model while recalls go on."""

from pathlib import Path
from typing import Annotated, Any

import typer

from memory_recall.cli.output import JsonOption, emit, execute
from memory_recall.embedding.apis import EmbedderApi, EmbedderOptions
from memory_recall.settings import Settings

ModelOption = Annotated[str, typer.Option(help="Name of the next model, as its embedder serves it.")]
UrlOption = Annotated[str, typer.Option(help="Where the next model is served, such as http://127.0.0.1:8081.")]
DimensionsOption = Annotated[
    int | None,
    typer.Option(
        min=1, max=4000, help="Dimensions that the vectors must have; of a hosted model, those that it is asked for."
    ),
]
ApiKeyOption = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file", help="File that holds the API key for --url; the configured embedder's key by default."
    ),
]
ApiOption = Annotated[
    EmbedderApi,
    typer.Option(help="API of --url; OpenAI also for llama-server, vLLM, infinity, Ollama and LiteLLM."),
]
ServedAsOption = Annotated[str | None, typer.Option(help="Name of the model at --url, if it is another one.")]
QueryPrefixOption = Annotated[
    str | None,
    typer.Option(help="What is put before a query at --url; with --api OpenAI or TEI, if not the profile's."),
]
DocumentPrefixOption = Annotated[
    str | None,
    typer.Option(help="What is put before a memory at --url; with --api OpenAI or TEI, if not the profile's."),
]
WithoutApiKeyOption = Annotated[bool, typer.Option("--without-api-key", help="Send no API key to --url.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Confirm; vectors are dropped.")]


def register(app: typer.Typer) -> None:
    """Add `memory swap` to the command line."""
    group = typer.Typer(
        help="Replace the embedding model without downtime and behind a quality gate.", no_args_is_help=True
    )
    group.command("plan")(plan_command)
    group.command("start")(start_command)
    group.command("status")(status_command)
    group.command("rollback")(rollback_command)
    group.command("abort")(abort_command)
    group.command("finish")(finish_command)
    app.add_typer(group, name="swap")


def plan_command(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    model: ModelOption,
    url: UrlOption,
    dimensions: DimensionsOption = None,
    api_key_file: ApiKeyOption = None,
    without_api_key: WithoutApiKeyOption = False,
    api: ApiOption = EmbedderApi.MEMORY_INDEX,
    served_as: ServedAsOption = None,
    sample: Annotated[
        int, typer.Option(min=1, help="How many texts to embed to learn the rate; none is sent beyond the cluster.")
    ] = 64,
    json: JsonOption = False,
) -> None:
    """Say what a swap would do, how long it would take and how much disk space it needs. Nothing is changed.

    Examples:
        memory swap plan --model bge-small-en-v1.5 --url http://127.0.0.1:8081
    """
    _require_one_key(api_key_file, without=without_api_key)

    async def action(settings: Settings) -> dict[str, Any]:
        from memory_recall.swap.embedders import NextEmbedder
        from memory_recall.swap.service import plan

        key = _key_file(settings, api_key_file, without=without_api_key)
        following = NextEmbedder(model, url, dimensions, key, EmbedderOptions(api, served_as))
        return await plan(settings, following, sample=sample)

    emit(execute(action, as_json=json), as_json=json, title="Swap plan")


def start_command(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    model: ModelOption,
    url: UrlOption,
    dimensions: DimensionsOption = None,
    api_key_file: ApiKeyOption = None,
    without_api_key: WithoutApiKeyOption = False,
    api: ApiOption = EmbedderApi.MEMORY_INDEX,
    served_as: ServedAsOption = None,
    query_prefix: QueryPrefixOption = None,
    document_prefix: DocumentPrefixOption = None,
    queries: Annotated[
        Path | None, typer.Option(help="Labelled questions (queries.jsonl), on which the next model must prove itself.")
    ] = None,
    qrels: Annotated[
        Path | None, typer.Option(help="Their judgements (qrels.jsonl), where the questions hold none.")
    ] = None,
    max_drop: Annotated[float, typer.Option(min=0, max=1, help="The drop of recall@10 that is tolerated.")] = 0.05,
    without_gate: Annotated[bool, typer.Option("--without-gate", help="Flip without measuring anything.")] = False,
    flip: Annotated[bool, typer.Option("--flip/--no-flip", help="Flip when ready, or wait for another start.")] = True,
    json: JsonOption = False,
) -> None:
    """Fill a second column with the next model's vectors, index it, measure the model, and make it active (the flip).

    If a swap to this model was interrupted, it is continued. Recalls are served all the while, and the command may be
    killed and started again at any moment. A next model that is shown to recall worse than --max-drop permits is
    refused with the numbers (exit status 4). If the questions are too few to tell, nothing is flipped either, and the
    message says how many are missing (exit status 5).

    Examples:
        memory swap start --model bge-small-en-v1.5 --url http://127.0.0.1:8081 --queries queries.jsonl --max-drop 0.03
        memory swap start --model bge-small-en-v1.5 --url http://127.0.0.1:8081 --without-gate --no-flip
        memory swap start --model bge-small-en-v1.5 --url http://llama:8080 --api OpenAI --served-as bge --without-gate
        memory swap start --model voyage-3.5 --url https://api.voyageai.com --api Voyage --without-gate
    """
    _require_one_key(api_key_file, without=without_api_key)
    if (queries is None) != without_gate:
        raise typer.BadParameter("Give the labelled questions with --queries, or say --without-gate.")

    async def action(settings: Settings) -> dict[str, Any]:
        from memory_recall.swap.embedders import NextEmbedder
        from memory_recall.swap.service import Gate, start

        gate = Gate(queries, qrels, max_drop) if queries is not None else None
        key = _key_file(settings, api_key_file, without=without_api_key)
        options = EmbedderOptions(api, served_as, query_prefix, document_prefix)
        return await start(settings, NextEmbedder(model, url, dimensions, key, options), gate=gate, flip=flip)

    emit(execute(action, as_json=json), as_json=json, title="Swap")


def rollback_command(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    url: Annotated[str, typer.Option(help="Where the previous model is served.")],
    api_key_file: ApiKeyOption = None,
    without_api_key: WithoutApiKeyOption = False,
    api: ApiOption = EmbedderApi.MEMORY_INDEX,
    served_as: ServedAsOption = None,
    query_prefix: QueryPrefixOption = None,
    document_prefix: DocumentPrefixOption = None,
    json: JsonOption = False,
) -> None:
    """Make the previous model active again. Only rows that changed since the flip need a new vector of that model.

    Examples:
        memory swap rollback --url http://127.0.0.1:8080
    """
    _require_one_key(api_key_file, without=without_api_key)

    async def action(settings: Settings) -> dict[str, Any]:
        from memory_recall.swap.service import roll_back

        key = _key_file(settings, api_key_file, without=without_api_key)
        options = EmbedderOptions(api, served_as, query_prefix, document_prefix)
        return await roll_back(settings, url=url, api_key_file=key, options=options)

    emit(execute(action, as_json=json), as_json=json, title="Swap")


def status_command(json: JsonOption = False) -> None:
    """Show the state of the last swap.

    The state consists of the stage, both models, the counts of rows with and without a vector of the model that is not
    active, and the recall of both models if it was measured.

    Examples:
        memory swap status --json | jq .stage
    """

    async def action(settings: Settings) -> dict[str, Any]:
        from memory_recall.swap.service import status

        return await status(settings)

    emit(execute(action, as_json=json), as_json=json, title="Swap")


def abort_command(yes: YesOption = False, json: JsonOption = False) -> None:
    """Abort a swap before its flip: drop the column of the next model's vectors. The active model stays active.

    Examples:
        memory swap abort --yes
    """
    _end("aborted", yes=yes, json=json)


def finish_command(yes: YesOption = False, json: JsonOption = False) -> None:
    """Finish a swap after its flip: drop the column of the previous model's vectors. A rollback is then impossible.

    Examples:
        memory swap finish --yes
    """
    _end("finished", yes=yes, json=json)


def _require_one_key(api_key_file: Path | None, *, without: bool) -> None:
    if api_key_file is not None and without:
        raise typer.BadParameter("Give --api-key-file, or say --without-api-key.")


def _key_file(settings: Settings, given: Path | None, *, without: bool) -> Path | None:
    """Return the file of the API key for `--url`, or None if no key is to be sent there."""
    return None if without else given or settings.embedder.api_key_file


def _end(stage: str, *, yes: bool, json: bool) -> None:
    if not yes:
        raise typer.BadParameter("This drops a column of vectors; confirm with --yes.")

    async def action(settings: Settings) -> dict[str, Any]:
        from memory_recall.swap.service import end

        return await end(settings, stage)

    emit(execute(action, as_json=json), as_json=json, title="Swap")
