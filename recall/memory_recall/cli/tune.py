"""`memory tune`: finds the fusion settings and the least relevance that suit the owner's labelled questions."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory_recall.cli.evaluate import question_lines
from memory_recall.cli.output import JsonOption, emit, execute, progress_bar, show
from memory_recall.errors import EmbedderUnavailable, InvalidInput
from memory_recall.evaluation.measures import Scores
from memory_recall.evaluation.relevance_levels import LEAST_KEPT, PROMPT_LIMIT, TunedLevel
from memory_recall.evaluation.significance import Comparison
from memory_recall.evaluation.tuning import LEAST_QUESTIONS, Tuned, choose, require_enough, settings
from memory_recall.search.fusion import Fusion, default_fusion
from memory_recall.search.relevance import UNKNOWN_RELEVANCE, RelevanceBasis
from memory_recall.settings import Settings

if TYPE_CHECKING:
    from memory_recall.evaluation.evaluate import Question
    from memory_recall.search.query import EmbeddedQuery
    from memory_recall.search.recall import Recall

_EMBEDDING_BUDGET = 30.0
_ABOUT_PROMPTS = f"""\
The prompts are those that are shipped, at a limit of {PROMPT_LIMIT}. The zero of relevance is the median cosine of
the same prompts, so that half of them lie below it from the outset: other prompts get somewhat more."""
Levels = TunedLevel | RelevanceBasis | None
"""What relevance levels keep; or why relevance is not known; or None if no relevant memory was recalled."""
_HELP = f"""Find the fusion and the least relevance that suit your own questions.

Takes the questions of `memory evaluate`, at least {LEAST_QUESTIONS} of them. The gain is measured on questions
that took no part in the choice, with a 95 % interval. Nothing is changed; --output writes the setting to a file, whose
content is given to the library as `Fusion(**content)`.

For each level of `least_relevance` it prints the share of your relevant memories that still come back, and what prompts
to which no memory fits still get. The highest level that keeps {LEAST_KEPT:.0%} of your memories is recommended.

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

    async def action(given: Settings) -> tuple[Tuned, Levels]:
        from memory_recall.cli.reading import opened_recall
        from memory_recall.evaluation.evaluate import embed_questions, parse_questions
        from memory_recall.evaluation.judged_ids import require_judged_ids
        from memory_recall.evaluation.rating import Rating, tune_level, unanswerable
        from memory_recall.indexing.usual_cosine import everyday_prompts

        questions = parse_questions(question_lines(queries))
        require_enough(len(questions))
        if not given.has_embedder:
            raise EmbedderUnavailable("Fusion needs a dense leg, and there is no embedder.", "Set MEMORY_EMBEDDER_URL.")
        await require_judged_ids(given, questions)
        async with opened_recall(given, dense=True, embedding_budget=_EMBEDDING_BUDGET, connections=concurrency) as (
            recall,
            embedder,
        ):
            prompts = unanswerable(everyday_prompts(), questions)
            vectors = await embed_questions([*questions, *prompts], embedder) if embedder else {}
            default = default_fusion(getattr(embedder, "model", None))
            tried = settings(default)
            with progress_bar() as bar:
                task = bar.add_task("Recalling", total=len(questions) * (len(tried) + 1) + len(prompts))
                advance = partial(bar.advance, task)
                scored = partial(_scored, recall, questions, vectors, concurrency=concurrency, progress=advance)
                scores = {setting: await scored(setting) for setting in tried}
                found = choose(scores, default)
                rate = Rating(recall, vectors, concurrency, found.chosen, advance)
                levels = await tune_level(rate, questions, prompts)
        if output is not None:
            _write(output, found.chosen)
        return found, levels

    found, levels = execute(action, as_json=as_json)
    if as_json:
        emit({**_as_dictionary(found), "relevance": _relevance(levels)}, as_json=True)
    else:
        _show(found, output)
        show(_spelt_levels(levels))


async def _scored(
    recall: "Recall",
    questions: "Sequence[Question]",
    vectors: "Mapping[str, EmbeddedQuery]",
    setting: Fusion,
    *,
    concurrency: int,
    progress: Callable[[], None],
) -> list[Scores]:
    """Return the scores of the questions with a fusion setting."""
    from memory_recall.evaluation.evaluate import evaluate

    outcomes = await evaluate(
        recall, questions, ["hybrid"], vectors, fusion=setting, concurrency=concurrency, progress=progress
    )
    return [one.scores for one in outcomes]


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


def _relevance(levels: Levels) -> dict[str, Any] | None:
    if isinstance(levels, RelevanceBasis):
        return {"unknown": levels}
    return None if levels is None else dataclasses.asdict(levels)


def _spelt_levels(levels: Levels) -> list[str]:
    if levels is None:
        return ["", "No least relevance is recommended: none of the relevant memories was among the first ten."]
    if isinstance(levels, RelevanceBasis):
        return ["", f"No least relevance is recommended: {UNKNOWN_RELEVANCE[levels]}."]
    lines = [
        "",
        f"Use least_relevance={levels.recommended!r}: the highest level that keeps {LEAST_KEPT:.0%} of your memories.",
        f"By {levels.relevant_memories} relevant memories (of {levels.questions} questions), {levels.prompts} prompts:",
        f"  {'level':<10}  {'kept':>5} (at least)  {'prompts without memories':>24}  {'memories in vain':>16}",
    ]
    for one in levels.levels:
        kept = f"{one.kept:>5.3f}    ({one.kept_at_least:.3f})"
        lines.append(f"  {one.level:<10}  {kept}  {one.empty:>24.2f}  {one.in_vain:>16.2f}")
    return [*lines, _ABOUT_PROMPTS]


def _spelt(gain: Comparison) -> str:
    return f"{gain.difference:+.3f} (95 % interval {gain.low:+.3f} to {gain.high:+.3f}, p = {gain.p_value:.3f})"
