"""`memory tune`: finds the fusion settings that recall best on the owner's labelled questions."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from memory_recall.cli.evaluate import question_lines
from memory_recall.cli.output import JsonOption, emit, execute, progress_bar, show
from memory_recall.errors import EmbedderUnavailable, InvalidInput
from memory_recall.evaluation.significance import Comparison
from memory_recall.evaluation.tuning import LEAST_QUESTIONS, Tuned, choose, require_enough, settings
from memory_recall.search.fusion import Fusion, default_fusion
from memory_recall.settings import Settings

_EMBEDDING_BUDGET = 30.0
_HELP = f"""Find the fusion that suits your own questions, and what it gains over the default.

Takes the questions of `memory evaluate`, at least {LEAST_QUESTIONS} of them. The gain is measured on questions
that took no part in the choice, with a 95 % interval. Nothing is changed; --output writes the setting to a file, whose
content is given to the library as `Fusion(**content)`.

Examples:

  memory tune --queries questions.jsonl

  memory tune --queries questions.jsonl --output fusion.json --json
"""


def register(app: typer.Typer) -> None:
    """Add `memory tune` to the command line."""
    app.command("tune", help=_HELP)(tune)


def tune(
    queries: Annotated[str, typer.Option(help="File of labelled questions, or - for standard input.")] = "-",
    output: Annotated[Path | None, typer.Option(help="Write the chosen setting here.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Questions asked at the same time.")] = 4,
    as_json: JsonOption = False,
) -> None:
    """Choose fusion settings on labelled questions, and print how much better they recall."""

    async def action(given: Settings) -> Tuned:
        from memory_recall.cli.reading import opened_recall
        from memory_recall.evaluation.evaluate import embed_questions, evaluate, parse_questions

        questions = parse_questions(question_lines(queries))
        require_enough(len(questions))
        if not given.has_embedder:
            raise EmbedderUnavailable("Fusion needs a dense leg, and there is no embedder.", "Set MEMORY_EMBEDDER_URL.")
        async with opened_recall(given, dense=True, embedding_budget=_EMBEDDING_BUDGET, connections=concurrency) as (
            recall,
            embedder,
        ):
            vectors = await embed_questions(questions, embedder) if embedder else {}
            scores = {}
            default = default_fusion(getattr(embedder, "model", None))
            with progress_bar() as bar:
                tried = settings(default)
                task = bar.add_task("Recalling", total=len(questions) * len(tried))
                for setting in tried:
                    outcomes = await evaluate(
                        recall,
                        questions,
                        ["hybrid"],
                        vectors,
                        fusion=setting,
                        concurrency=concurrency,
                        progress=lambda: bar.advance(task),
                    )
                    scores[setting] = [one.scores for one in outcomes]
        found = choose(scores, default)
        if output is not None:
            _write(output, found.chosen)
        return found

    found = execute(action, as_json=as_json)
    if as_json:
        emit(_as_dictionary(found), as_json=True)
    else:
        _show(found, output)


def _write(path: Path, chosen: Fusion) -> None:
    try:
        path.write_text(json.dumps(dataclasses.asdict(chosen), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written ({type(error).__name__}).", "Name a writable file.") from None


def _as_dictionary(found: Tuned) -> dict[str, Any]:
    return {
        "questions": found.questions,
        "recommended": found.recommended,
        "fusion": dataclasses.asdict(found.chosen),
        "gain": {"recall@10": dataclasses.asdict(found.recall_10), "ndcg@10": dataclasses.asdict(found.ndcg_10)},
    }


def _show(found: Tuned, output: Path | None) -> None:
    if found.recommended:
        differing = {
            field.name: getattr(found.chosen, field.name)
            for field in dataclasses.fields(Fusion)
            if getattr(found.chosen, field.name) != field.default
        }
        arguments = ", ".join(f"{name}={value!r}" for name, value in differing.items())
        lines = [f"Use Fusion({arguments})."]
    else:
        lines = ["Keep the default: no other setting is reliably better on these questions."]
    lines.append(f"Choosing a setting gains, on {found.questions} questions held out in turn:")
    for measure, gain in (("recall@10", found.recall_10), ("nDCG@10", found.ndcg_10)):
        lines.append(f"  {measure:<10} {_spelt(gain)}")
    show([*lines, *([f"Written to {output}."] if output is not None else [])])


def _spelt(gain: Comparison) -> str:
    return f"{gain.difference:+.3f} (95 % interval {gain.low:+.3f} to {gain.high:+.3f}, p = {gain.p_value:.3f})"
