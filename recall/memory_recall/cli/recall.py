"""`memory recall`: asks the store a question, with the statement that serves the API."""

from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from memory_recall.cli.output import JsonOption, emit, execute
from memory_recall.errors import InvalidInput
from memory_recall.search.fusion import SortBy
from memory_recall.search.query import Mode, RecallResult
from memory_recall.settings import Settings

_INTERACTIVE_BUDGET = 5.0  # whoever types a question would rather wait for meaning than not get it

_HELP = """Recall memories by words and by meaning.

Examples:

  memory recall "how did I fix the flaky zigbee dongle"

  memory recall "backup schedule" --mode lexical --limit 5 --json
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("recall", help=_HELP)(recall)


def recall(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    query: Annotated[str, typer.Argument(help="What to recall, in plain words.")],
    limit: Annotated[int, typer.Option(help="How many memories at most (1 to 500).")] = 10,
    sort_by: Annotated[SortBy, typer.Option(help="What comes first.")] = SortBy.RELEVANCE,
    category: Annotated[str | None, typer.Option(help="Only this category.")] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's memories.")] = None,
    mode: Annotated[str, typer.Option(help="hybrid, lexical or dense.")] = "hybrid",
    sensitive: Annotated[
        bool, typer.Option("--sensitive", help="Never send this query to a hosted embedder; words alone if need be.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also show what each leg found and how long it took.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Recall memories."""

    async def action(settings: Settings) -> RecallResult:
        from memory_recall.cli.reading import opened_recall

        async with opened_recall(settings, semantic=mode != "lexical", budget=_INTERACTIVE_BUDGET) as (hybrid, _):
            return await hybrid.recall(
                query,
                limit=limit,
                sort_by=sort_by,
                category=category,
                user_id=user,
                mode=checked_mode(mode),
                sensitive=sensitive,
                explain=explain,
            )

    result = execute(action, as_json=as_json)
    if as_json:
        emit(as_dictionary(result, explain=explain), as_json=True)
    else:
        _show(result, explain=explain)


def checked_mode(name: str) -> Mode:
    """The mode of that name.

    Raises:
        InvalidInput: there is no such mode.
    """
    known: dict[str, Mode] = {mode: mode for mode in get_args(Mode)}
    if name not in known:
        raise InvalidInput(f"There is no mode {name!r}.", f"Use one of: {', '.join(known)}.")
    return known[name]


def as_dictionary(result: RecallResult, *, explain: bool) -> dict[str, Any]:
    """The result as the API would give it, with what happened beside it."""
    memories = []
    for memory in result.memories:
        entry = {
            "id": memory.id,
            "content": memory.content,
            "category": memory.category,
            "tags": memory.tags,
            "importance": memory.importance,
            "is_sensitive": memory.is_sensitive,
            "rank": memory.rank,
            "owner": memory.owner,
            "created_at": memory.created_at,
            "updated_at": memory.updated_at,
        }
        if explain:
            evidence = memory.evidence
            entry["evidence"] = {
                "lexical_rank": evidence.lexical_rank,
                "lexical_score": evidence.lexical_score,
                "dense_rank": evidence.dense_rank,
                "dense_score": evidence.dense_score,
            }
        memories.append(entry)
    timings = result.timings
    report: dict[str, Any] = {
        "memories": memories,
        "mode": result.mode,
        "degraded": result.degraded,
        "reason": result.reason,
        "milliseconds": {"total": timings.total, "embedding": timings.embedding, "database": timings.database},
    }
    if explain:
        report["milliseconds"]["legs"] = dict(timings.legs)
    return report


def _show(result: RecallResult, *, explain: bool) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("#", "score", *(("lexical", "dense") if explain else ()), "category"):
        table.add_column(heading, justify="right" if heading != "category" else "left", no_wrap=True)
    table.add_column("memory", overflow="fold")
    for memory in result.memories:
        evidence = memory.evidence
        ranks = [str(rank or "-") for rank in (evidence.lexical_rank, evidence.dense_rank)] if explain else []
        # As text, since what stands in brackets would be taken for markup.
        table.add_row(str(memory.id), f"{memory.rank:.3f}", *ranks, Text(memory.category or ""), Text(memory.content))
    console = Console()
    console.print(table if result.memories else "Nothing was recalled.")
    notes = Console(stderr=True, highlight=False)
    if result.degraded:
        notes.print(f"[yellow]Words only[/]: {result.reason}")
    if explain:
        timings = result.timings
        legs = ", ".join(f"{name} {value:.1f}" for name, value in timings.legs.items())
        notes.print(
            f"{timings.total:.1f} ms: embedding {timings.embedding:.1f}, database {timings.database:.1f} ({legs})"
        )
