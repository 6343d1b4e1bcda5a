"""`memory recall`: recalls memories from the command line, in the same way as a memory server does."""

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from memory_recall.cli.output import JsonOption, emit, execute, shown
from memory_recall.errors import InvalidInput
from memory_recall.search.fusion import SortBy
from memory_recall.search.query import MAX_QUERY_CHARACTERS, RecallQuery, mode_named
from memory_recall.search.relevance import UNKNOWN_RELEVANCE, RelevanceBasis, least_relevance_named
from memory_recall.search.result import WHY_DEGRADED, Expansion, RecallResult
from memory_recall.search.sql.filters import FILTER_TYPES, Filters, filter_condition
from memory_recall.search.sql.visibility import Everyone
from memory_recall.search.validation import parse_fields
from memory_recall.settings import Settings

EMBEDDING_BUDGET = 5.0  # seconds; whoever types a query would rather wait for the dense leg than not get it
_LONGEST_INPUT = 4 * MAX_QUERY_CHARACTERS  # bytes; a character has at most four in UTF-8

ExpandOption = Annotated[
    str | None,
    typer.Option("--expand", metavar="URL", help="Also search words that the language model at this address names."),
]
LeastRelevanceOption = Annotated[
    str, typer.Option(metavar="LEVEL", help="Hold back memories of less: everything, likely, certain, or 0 to 1.")
]
ModelNameOption = Annotated[str, typer.Option(help="Name of the language model, as its server knows it.")]
ModelKeyOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File that holds the API key of the language model.")
]

_HELP = """Recall memories by words and by meaning.

What is typed on a command line shows in the list of processes and stays in the shell's history. So - as the query reads
it from standard input.

Examples:

  memory recall - --user ana < question.txt

  memory recall - --everyone --mode lexical --limit 5 --json

  memory recall "backup schedule" --user ana

  memory recall "backup schedule" --everyone --sqlite memories.db
"""


def register(app: typer.Typer) -> None:
    """Add `memory recall` to the command line."""
    app.command("recall", help=_HELP)(_with_filter_options(recall))


def _with_filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the command's parameter `filters` by one option for each field of `Filters`.

    The command then receives `filters` as a mapping from the names of the given options to the texts that the user
    typed.
    """

    @functools.wraps(command)
    def parsing(**given: Any) -> None:  # noqa: ANN401  (typer's values of many types)
        filters = {name: given.pop(name) for name in FILTER_TYPES}
        command(**given, filters={name: value for name, value in filters.items() if value})

    own = inspect.signature(command)
    options = [_filter_option(name) for name in FILTER_TYPES]
    others = [parameter for parameter in own.parameters.values() if parameter.name != "filters"]
    vars(parsing)["__signature__"] = own.replace(parameters=[*others, *options])
    return parsing


def _filter_option(name: str) -> inspect.Parameter:
    flag = f"--{name.replace('_', '-')}"
    kind = list[str] if get_origin(get_args(FILTER_TYPES[name])[0]) is tuple else str
    option = typer.Option(flag, help=filter_condition(name).help)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def recall(
    query: Annotated[str, typer.Argument(help="What to recall, in plain words; - reads it from standard input.")],
    *,
    user: Annotated[str | None, typer.Option(help="Search this user's memories.")] = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="Search everybody's memories, the sensitive ones of --user included.")
    ] = False,
    limit: Annotated[int, typer.Option(help="How many memories at most (1 to 10,000).")] = 10,
    sort_by: Annotated[SortBy, typer.Option(help="What comes first.")] = SortBy.RELEVANCE,
    mode: Annotated[str, typer.Option(help="hybrid, lexical or dense.")] = "hybrid",
    sensitive: Annotated[
        bool,
        typer.Option(
            "--sensitive", help="Send this query to no hosted embedder and no language model; go lexical if need be."
        ),
    ] = False,
    least_relevance: LeastRelevanceOption = "everything",
    max_tokens: Annotated[
        int | None, typer.Option(help="Let the memories together have at most about so many tokens.")
    ] = None,
    distinct: Annotated[bool, typer.Option("--distinct", help="Leave out near-copies of a better memory.")] = False,
    expand: ExpandOption = None,
    expand_model: ModelNameOption = "default",
    expand_key_file: ModelKeyOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also show what each leg found and how long it took.")
    ] = False,
    sqlite: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Search this local SQLite file by words, without Postgres.")
    ] = None,
    as_json: JsonOption = False,
    filters: Mapping[str, object],
) -> None:
    """Recall memories and print them."""

    async def action(settings: Settings) -> RecallResult:
        request = RecallQuery(
            _query_text(query),
            user_id=search_scope(user, everyone=everyone),
            filters=parse_fields(Filters, filters),
            limit=limit,
            sort_by=sort_by,
            mode=mode_named(mode),
            sensitive=sensitive,
            explain=explain,
            expand=expand is not None,
            least_relevance=least_relevance_named(least_relevance),
            max_tokens=max_tokens,
            distinct=distinct,
        )
        if sqlite is not None:
            return _recall_sqlite(sqlite, request)
        return await _recall_postgres(settings, request, expand, expand_model, expand_key_file)

    result = execute(action, as_json=as_json)
    if as_json:
        emit(as_dictionary(result, explain=explain), as_json=True)
    else:
        _show(result, explain=explain)


async def _recall_postgres(
    settings: Settings, query: RecallQuery, expand_url: str | None, expand_model: str, expand_key_file: Path | None
) -> RecallResult:
    from memory_recall.cli.reading import opened_recall

    opened = opened_recall(
        settings,
        dense=query.mode != "lexical",
        embedding_budget=EMBEDDING_BUDGET,
        expand_url=expand_url,
        expand_model=expand_model,
        expand_key_file=expand_key_file,
    )
    async with opened as (hybrid, _):
        return await hybrid.recall(query)


def _recall_sqlite(file: Path, query: RecallQuery) -> RecallResult:
    """Recall from a SQLite file, whose only leg is lexical.

    Raises:
        InvalidInput: the query asks for the dense leg alone, for further words or for what a file cannot tell, or the
            file cannot be searched.
    """
    from memory_recall.contrib.sqlite import opened_sqlite

    if query.mode == "dense":
        raise InvalidInput("A SQLite file is searched by words alone.", "Leave out --mode dense.")
    if query.expand:
        raise InvalidInput("A SQLite file is searched by the query's own words alone.", "Leave out --expand.")
    with opened_sqlite(file) as recall:
        return recall.recall(query)


def _query_text(argument: str) -> str:
    """Return the text of the query: the argument itself, or the text on standard input if the argument is `-`.

    At most as many bytes are read from standard input as the longest permitted query can have.
    """
    if argument != "-":
        return argument
    return sys.stdin.buffer.read(_LONGEST_INPUT).decode("utf-8", "ignore")


def search_scope(user: str | None, *, everyone: bool) -> str | Everyone:
    """Return whose memories are searched: one user's, or everyone's.

    Raises:
        InvalidInput: neither --user nor --everyone was given.
    """
    if everyone:
        return Everyone(reader=user)
    if user is None:
        raise InvalidInput("This does not say whose memories are searched.", "Give --user NAME, or --everyone.")
    return user


def as_dictionary(result: RecallResult, *, explain: bool) -> dict[str, Any]:
    """Return a recall's result as a dictionary for JSON. Times are in milliseconds.

    `reason` says why the recall was degraded, and is None if it was not. Only a superseded memory has
    `superseded_by`. What each leg found is left out unless `explain` is set, and `graph_score` with it unless the
    concept graph reached the memory. `expansion` is there if it was asked for. If relevance was asked for, there are
    `held_back` and `relevance_basis`, with `explain` also `relevance_scale`, and each memory has its `relevance` if it
    is known. `left_out` is there if memories did not fit into the tokens that were allowed.
    """
    memories = [dataclasses.asdict(memory) for memory in result.memories]
    for memory in memories:
        for name in ("superseded_by", "relevance"):
            if memory[name] is None:
                del memory[name]
        if memory["evidence"]["graph_score"] is None:
            del memory["evidence"]["graph_score"]
    milliseconds = dataclasses.asdict(result.timings)
    if not explain:
        del milliseconds["legs"]
        for memory in memories:
            del memory["evidence"]
    asked = result.expansion not in {Expansion.OFF, Expansion.NOT_ASKED}
    return {
        "memories": memories,
        "mode": result.mode,
        "degraded": result.degraded,
        "reason": result.reason,
        **({"expansion": result.expansion} if asked else {}),
        **_held_back(result, explain=explain),
        **({"left_out": result.left_out} if result.left_out else {}),
        "milliseconds": milliseconds,
    }


def _held_back(result: RecallResult, *, explain: bool) -> dict[str, Any]:
    if result.relevance_basis is RelevanceBasis.NOT_ASKED:
        return {}
    scale = dataclasses.asdict(result.relevance_scale) if explain and result.relevance_scale else None
    basis = {"held_back": result.held_back, "relevance_basis": result.relevance_basis}
    return basis if scale is None else {**basis, "relevance_scale": scale}


def _note_relevance(notes: Console, result: RecallResult, *, explain: bool) -> None:
    """Print how many memories were held back, or why none was."""
    basis, scale = result.relevance_basis, result.relevance_scale
    if result.held_back:
        notes.print(f"[yellow]Held back[/]: {result.held_back} of less relevance")
    elif basis is not RelevanceBasis.NOT_ASKED and not basis.known:
        notes.print(f"[yellow]Nothing held back[/]: {UNKNOWN_RELEVANCE[basis]}")
    if explain and scale is not None:
        best = [f"best words {scale.most_lexical or 0.0:.2f} of {scale.max_lexical_score or 0.0:.2f}"]
        if scale.most_dense is not None and scale.usual_cosine is not None:
            best.insert(0, f"best cosine {scale.most_dense:.2f}, usual cosine {scale.usual_cosine:.2f}")
        notes.print(f"relevance: {'; '.join(best)}")


def _show(result: RecallResult, *, explain: bool) -> None:
    table = Table(box=None, pad_edge=False)
    by_graph = explain and any(memory.evidence.graph_score is not None for memory in result.memories)
    legs_shown = (*(("lexical", "dense") if explain else ()), *(("graph",) if by_graph else ()))
    relevance_shown = ("relevance",) if result.relevance_basis.known else ()
    for heading in ("#", "score", *relevance_shown, *legs_shown, "category"):
        table.add_column(heading, justify="right" if heading != "category" else "left", no_wrap=True)
    table.add_column("memory", overflow="fold")
    for memory in result.memories:
        evidence = memory.evidence
        ranks = [] if memory.relevance is None else [f"{memory.relevance:.2f}"]
        if explain:
            ranks += [str(rank or "-") for rank in (evidence.lexical_rank, evidence.dense_rank)]
        if by_graph:
            ranks.append("-" if evidence.graph_score is None else f"{evidence.graph_score:.2f}")
        content = shown(memory.content)
        if memory.superseded_by is not None:
            successor = shown(f"superseded by {memory.superseded_by}: ")
            successor.stylize("yellow")
            content = Text.assemble(successor, content)
        table.add_row(shown(str(memory.id)), f"{memory.rank:.3f}", *ranks, shown(memory.category or ""), content)
    console = Console()
    console.print(table if result.memories else "Nothing was recalled.")
    notes = Console(stderr=True, highlight=False)
    if result.reason is not None:
        notes.print(f"[yellow]Lexical only[/]: {result.reason}: {WHY_DEGRADED[result.reason]}")
    _note_relevance(notes, result, explain=explain)
    if result.left_out:
        notes.print(f"[yellow]Left out[/]: {result.left_out} that did not fit into the tokens")
    if result.expansion not in {Expansion.OFF, Expansion.NOT_ASKED, Expansion.DONE}:
        notes.print(f"[yellow]Without further words[/]: {result.expansion}")
    if explain:
        timings = result.timings
        legs = ", ".join(f"{name} {value:.1f}" for name, value in timings.legs.items())
        notes.print(
            f"{timings.total:.1f} ms: embedding {timings.embedding:.1f}, database {timings.database:.1f}"
            + (f" ({legs})" if legs else "")
        )
