"""The steps of the demo, the same on a cluster and on this machine.

The demo stores memories first and gives them vectors afterwards. Every number about the data is counted by the database
itself. The record keeps what was established before a failure, so that the last line of output tells how far the demo
came.
"""

from collections.abc import Mapping
from dataclasses import replace

import orjson

from devcluster.demo import questions
from devcluster.demo.console import DemoConsole, duration_text
from devcluster.demo.dataset import Dataset, LabelledQuery, evaluation_lines
from devcluster.demo.environment import EXTENSION_MISSING, DemoEnvironment, DemoError, Speed, memory
from devcluster.demo.questions import Answer, Comparison
from devcluster.demo.verdict import MODES, Counts, Outcome, Recall

THROUGHPUT_ROWS = 1000
THROUGHPUT_GOAL = 0.8
MEASURE = "ndcg@10"
COUNTS = """
SELECT json_build_object(
    'rows', count(*),
    'embedded', {embedded},
    'sensitive', count(*) FILTER (WHERE is_sensitive::int <> 0),
    'sensitive_embedded', {sensitive_embedded},
    'deleted', count(*) FILTER (WHERE deleted_at IS NOT NULL AND is_sensitive::int = 0))
FROM memories
"""
BEFORE = COUNTS.format(embedded="0", sensitive_embedded="0")
AFTER = COUNTS.format(
    embedded="count(embedding)", sensitive_embedded="count(embedding) FILTER (WHERE is_sensitive::int <> 0)"
)


class Record:
    """The outcome of the demo so far; the steps update it."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def update(self, **facts: bool | str | Counts | Recall) -> None:
        """Set fields of the outcome."""
        self.outcome = replace(self.outcome, **facts)  # type: ignore[arg-type]  # each fact names its field


def run(environment: DemoEnvironment, console: DemoConsole, dataset: Dataset, record: Record) -> None:
    """Run all steps of the demo, from memories without an index to measured hybrid recall."""
    store(environment, console, dataset)
    environment.create_index(console)
    record.update(ready=True)
    check_rows(environment, console, record)
    evaluate(environment, console, dataset, record)
    compare(environment, console, dataset)
    measure_throughput(environment, console)


def store(environment: DemoEnvironment, console: DemoConsole, dataset: Dataset) -> None:
    """Create the table and import the memories, still without vectors."""
    with console.step("Create the table of memories") as step:
        memory(environment, "migrate", accept=(0, EXTENSION_MISSING))
        step.result = "the embedding column waits for pgvector"
    with console.step(f"Import {len(dataset.memories)} memories of “{dataset.name}”") as step:
        memory(environment, "import", "-", stdin=dataset.corpus_lines())
        counted = counts(environment, BEFORE)
        step.result = f"{counted.rows} rows, {counted.sensitive} of them sensitive"
    if counted.rows != len(dataset.memories) or counted.sensitive != dataset.sensitive:
        raise DemoError(f"the set has {len(dataset.memories)} memories, the database holds {counted.rows}")


def counts(environment: DemoEnvironment, statement: str = AFTER) -> Counts:
    """Count the rows of the table by SQL: all, embedded, sensitive, deleted."""
    return Counts(**orjson.loads(environment.sql(" ".join(statement.split()))))


def check_rows(environment: DemoEnvironment, console: DemoConsole, record: Record) -> None:
    """Count the rows that have a vector, and record the counts in the outcome."""
    with console.step("Ask Postgres which rows have a vector") as step:
        counted = counts(environment)
        step.result = (
            f"{counted.embedded} of {counted.expected} that may; "
            f"{counted.sensitive_embedded} of {counted.sensitive} sensitive ones"
        )
    record.update(counts=counted)


def evaluate(environment: DemoEnvironment, console: DemoConsole, dataset: Dataset, record: Record) -> None:
    """Measure recall@10 of the lexical, the dense and the hybrid mode on all questions."""
    with console.step(f"Ask {len(dataset.queries)} labelled questions") as step:
        lines = evaluation_lines(dataset.queries)
        answer = memory(environment, "evaluate", "--queries", "-", "--modes", ",".join(MODES), stdin=lines)
        measured = Recall(**{mode: float(answer["recall@10"][mode]) for mode in MODES})
        step.result = "recall@10 " + ", ".join(f"{mode} {getattr(measured, mode):.3f}" for mode in MODES)
    record.update(recall=measured)


def compare(environment: DemoEnvironment, console: DemoConsole, dataset: Dataset) -> None:
    """Show the lexical and the hybrid answers to the questions on which the two modes differ most."""
    candidates = questions.candidates(dataset)
    with console.step(f"Show where the two differ most among {len(candidates)} of them") as step:
        lines = evaluation_lines(candidates, one_by_one=True)
        measured = memory(environment, "evaluate", "--queries", "-", "--modes", "lexical,hybrid", stdin=lines)["strata"]
        chosen = questions.most_different(candidates, {key: _gain(one[MEASURE]) for key, one in measured.items()})
        comparisons = []
        for question in chosen:
            comparisons.append(compare_modes(environment, question))
            step.note(f"{len(comparisons)} of {len(chosen)}", fraction=len(comparisons) / len(chosen))
    for comparison in comparisons:
        console.show(questions.table(comparison))


def _gain(by_mode: Mapping[str, float]) -> float:
    return by_mode["hybrid"] - by_mode["lexical"]


def compare_modes(environment: DemoEnvironment, question: LabelledQuery) -> Comparison:
    """Recall memories for a question in the lexical and in the hybrid mode."""
    return Comparison(
        question, lexical=recall(environment, question, "lexical"), hybrid=recall(environment, question, "hybrid")
    )


def recall(environment: DemoEnvironment, question: LabelledQuery, mode: str) -> tuple[Answer, ...]:
    """Return the best memories for a question in one mode."""
    scope = ("--user", question.query.user) if question.query.user else ("--everyone",)
    limit = ("--limit", str(questions.DEPTH))
    answer = memory(environment, "recall", question.query.text, "--mode", mode, *limit, *scope)
    return tuple(Answer(int(row["id"]), str(row["content"])) for row in answer["memories"])


def measure_throughput(environment: DemoEnvironment, console: DemoConsole) -> None:
    """Compare the speed of the backfill with the speed of the embedder alone."""
    with console.step("Compare the backfill with the embedder's own speed") as step:
        report = memory(environment, "backfill", "--dry-run", "--limit", str(THROUGHPUT_ROWS))
        alone, backfill = Speed.from_report(report, rows="documents"), environment.backfill_speed()
        said = f"embedder alone {_speed_text(alone, 'documents')}"
        if backfill is None:
            step.result = f"{said}; the backfill reported nothing"
            return
        share = backfill.tokens / alone.tokens
        verdict = "" if share >= THROUGHPUT_GOAL else f", below the goal of {THROUGHPUT_GOAL}"
        step.result = f"backfill {_speed_text(backfill, 'rows')}; {said}: {share:.2f}{verdict}"


def _speed_text(speed: Speed, documents: str) -> str:
    return f"{speed.rows:.1f} {documents}/s, {speed.tokens:,.0f} tokens/s"


def closing_line(outcome: Outcome) -> str:
    """Return the last line that the demo writes for people."""
    where = f"on a real cluster (driver {outcome.cluster})" if outcome.cluster else "on this machine, without a cluster"
    return f"All of it held, {where}, in {duration_text(outcome.seconds)}."
