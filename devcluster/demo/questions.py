"""Chooses questions that show the difference between lexical and hybrid recall, and shows both answers.

The choice is fair. The candidates are spread evenly over the set, or over its paraphrase questions if it has any. The
candidates whose two answers differ most in quality are shown, whichever answer is better. The table marks the correct
memories in both answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from devcluster.demo.dataset import Dataset, LabelledQuery

CANDIDATES = 40
SHOWN = 3
DEPTH = 3
PREFERRED_STRATA = ("paraphrase", "open", "multihop")


@dataclass(frozen=True)
class Answer:
    """One recalled memory: its id and its text."""

    id: int
    content: str


@dataclass(frozen=True)
class Comparison:
    """A question with its lexical and its hybrid answer, best memories first."""

    question: LabelledQuery
    lexical: tuple[Answer, ...]
    hybrid: tuple[Answer, ...]


def candidates(dataset: Dataset, count: int = CANDIDATES) -> tuple[LabelledQuery, ...]:
    """Select at most `count` questions, spread evenly over the first stratum that the set has.

    The strata are tried in the order paraphrase, open, multihop. A set with none of them is used as a whole.
    """
    present = {labelled.query.stratum for labelled in dataset.queries}
    stratum = next((name for name in PREFERRED_STRATA if name in present), None)
    pool = [labelled for labelled in dataset.queries if stratum in {None, labelled.query.stratum}]
    stride = max(1, len(pool) // count)
    return tuple(pool[::stride][:count])


def most_different(
    candidates: Sequence[LabelledQuery], difference: Mapping[str, float], count: int = SHOWN
) -> tuple[LabelledQuery, ...]:
    """Return the `count` questions whose `difference` has the greatest absolute value; ties keep the set's order."""
    ordered = sorted(candidates, key=lambda labelled: -abs(difference[labelled.query.query_id]))
    return tuple(ordered[:count])


def table(comparison: Comparison, width: int = 60) -> Table:
    """Return a table that shows both answers to a question side by side."""
    grid = Table(
        title=f"“{escape(comparison.question.query.text)}”", title_justify="left", title_style="bold", expand=False
    )
    grid.add_column("", justify="right", style="dim")
    grid.add_column("by words (lexical)", max_width=width)
    grid.add_column("by words and meaning (hybrid)", max_width=width)
    for rank in range(DEPTH):
        cells = [_cell(comparison, answers, rank) for answers in (comparison.lexical, comparison.hybrid)]
        grid.add_row(str(rank + 1), *cells)
    return grid


def _cell(comparison: Comparison, answers: Sequence[Answer], rank: int) -> str:
    if rank >= len(answers):
        return "[dim]-[/]"
    answer = answers[rank]
    text = " ".join(answer.content.split())
    text = escape(text if len(text) <= 110 else f"{text[:109]}…")
    return f"[green]✓ {text}[/]" if answer.id in comparison.question.relevant_ids else text
