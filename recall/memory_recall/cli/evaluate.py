"""`memory evaluate`: measures recall on labelled questions."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from memory_recall.cli.output import JsonOption, emit, execute, progress_bar, shown
from memory_recall.cli.recall import ExpandOption, ModelKeyOption, ModelNameOption
from memory_recall.errors import EmbedderUnavailable, InvalidInput
from memory_recall.search.query import mode_named
from memory_recall.settings import Settings

_EMBEDDING_BUDGET = 30.0
_HELP = """Measure recall@5, recall@10, nDCG@10 and MRR on labelled questions.

Each line of the input is one JSON object: query_id, text, relevant_ids, and optionally stratum and conv (the user whose
memories the question is about; absent or "all" searches everybody's). In place of relevant_ids or beside it, grades
gives judged memories a grade from 0 to 3, such as {"17": 3, "90": 1}.

Examples:

  memory evaluate --queries questions.jsonl

  memory evaluate --queries questions.jsonl --report report.html

  memory evaluate --queries - --modes lexical --json < questions.jsonl

  memory evaluate --queries questions.jsonl --modes lexical,hybrid --expand http://llm:8080
"""


def register(app: typer.Typer) -> None:
    """Add `memory evaluate` to the command line."""
    app.command("evaluate", help=_HELP)(evaluate)


def evaluate(
    queries: Annotated[str, typer.Option(help="File of labelled questions, or - for standard input.")] = "-",
    modes: Annotated[str, typer.Option(help="Comma-separated: lexical, dense, hybrid.")] = "lexical,dense,hybrid",
    *,
    expand: ExpandOption = None,
    expand_model: ModelNameOption = "default",
    expand_key_file: ModelKeyOption = None,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Questions asked at the same time.")] = 4,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write one HTML page with plots and intervals here.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure recall on labelled questions, and print the measures."""

    async def action(settings: Settings) -> dict[str, Any]:
        from memory_recall.cli.reading import opened_recall
        from memory_recall.evaluation.evaluate import embed_questions, parse_questions, summarise
        from memory_recall.evaluation.evaluate import evaluate as measure
        from memory_recall.evaluation.judged_ids import require_judged_ids

        chosen = [mode_named(name.strip()) for name in modes.split(",")]
        questions = parse_questions(question_lines(queries))
        dense = any(mode != "lexical" for mode in chosen)
        if dense and not settings.has_embedder:
            raise EmbedderUnavailable(
                "Only the mode lexical can be measured without an embedder.",
                "Set MEMORY_EMBEDDER_URL, or use --modes lexical.",
            )
        await require_judged_ids(settings, questions)
        async with opened_recall(
            settings, dense=dense, embedding_budget=_EMBEDDING_BUDGET, connections=concurrency,
            expand_url=expand, expand_model=expand_model, expand_key_file=expand_key_file,
        ) as opened:  # fmt: skip
            recall, embedder = opened
            vectors = await embed_questions(questions, embedder) if embedder else {}
            with progress_bar() as bar:
                task = bar.add_task("Recalling", total=len(questions) * len(chosen))
                outcomes = await measure(
                    recall, questions, chosen, vectors,
                    concurrency=concurrency, expand=expand is not None, progress=lambda: bar.advance(task),
                )  # fmt: skip
        if report is not None:
            from memory_recall.evaluation.report import report_page
            from memory_recall.private_file import write_private_file

            write_private_file(report, report_page(outcomes, chosen).encode())
        return summarise(outcomes, chosen)

    measured = execute(action, as_json=as_json)
    if as_json:
        emit(measured, as_json=True)
    else:
        _show(measured)


def question_lines(source: str) -> list[str]:
    """Return the lines of a file of questions, or of standard input if `source` is `-`.

    Raises:
        InvalidInput: the file or the standard input cannot be read.
    """
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"The questions cannot be read ({type(error).__name__}).", "Give a readable UTF-8 file."
        ) from None
    return text.split("\n")  # splitlines would also split at characters that JSON strings may hold


def _show(report: dict[str, Any]) -> None:
    from memory_recall.evaluation.evaluate import UNNAMED

    measures = [name for name in report if name not in {"strata", "queries", "expanded"}]
    modes = list(report[measures[0]])
    expanded = f", {report['expanded']} expanded" if "expanded" in report else ""
    table = Table(
        "stratum", "measure", title=f"{report['queries']} questions{expanded}", title_justify="left", box=None
    )
    for mode in modes:
        table.add_column(mode, justify="right")
    strata = [] if set(report["strata"]) == {UNNAMED} else report["strata"].items()
    for name, scores in [("all", report), *strata]:
        for measure in measures:
            table.add_row(shown(name), measure, *(f"{scores[measure][mode]:.3f}" for mode in modes))
    Console().print(table)
