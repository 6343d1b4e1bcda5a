"""The outcome of the demo, the check of its promises, and the outcome as JSON.

The JSON object is the last line of stdout and the interface for scripts: its keys are stable, and a value that the demo
did not reach is null, so that a failed run can be read by the same program as a good one.
"""

from dataclasses import dataclass

import orjson

MODES = ("lexical", "dense", "hybrid")


@dataclass(frozen=True)
class Counts:
    """Numbers of rows, counted by the database."""

    rows: int
    embedded: int
    sensitive: int
    sensitive_embedded: int
    deleted: int
    """Rows with a delete mark that are not sensitive as well."""

    @property
    def expected(self) -> int:
        """Number of rows that must have a vector."""
        return self.rows - self.sensitive - self.deleted


@dataclass(frozen=True)
class Recall:
    """The recall@10 that the demo measured in each mode, from 0 to 1."""

    lexical: float
    dense: float
    hybrid: float


@dataclass(frozen=True)
class Outcome:
    """What the demo has established; a fact that was not reached is None."""

    cluster: str | None
    seconds: float
    ready: bool = False
    counts: Counts | None = None
    recall: Recall | None = None


def problems(outcome: Outcome) -> tuple[str, ...]:
    """Return the promises that the demo did not keep, as sentences; empty if it succeeded."""
    return (*_of_index(outcome.ready, outcome.counts), *_of_recall(outcome.recall))


def _of_index(ready: bool, counts: Counts | None) -> list[str]:
    found = [] if ready else ["the index did not become ready"]
    if counts is None:
        return [*found, "the rows were not counted"]
    if counts.embedded != counts.expected:
        found.append(f"{counts.embedded} rows have a vector, {counts.expected} should")
    if counts.sensitive_embedded:
        found.append(f"{counts.sensitive_embedded} sensitive rows have a vector, none may")
    return found


def _of_recall(recall: Recall | None) -> list[str]:
    if recall is None:
        return ["recall was not measured"]
    if recall.hybrid < recall.lexical:
        return [f"hybrid recall@10 {recall.hybrid:.3f} is below lexical {recall.lexical:.3f}"]
    return []


def as_json(outcome: Outcome) -> str:
    """Return the outcome as one line of JSON, the last line of stdout."""
    counts, recall = outcome.counts, outcome.recall
    return orjson.dumps(
        {
            "ready": outcome.ready,
            "rows": counts and counts.rows,
            "embedded": counts and counts.embedded,
            "sensitive": counts and counts.sensitive,
            "sensitive_embedded": counts and counts.sensitive_embedded,
            "recall@10": recall and {mode: round(getattr(recall, mode), 4) for mode in MODES},
            "cluster": outcome.cluster,
            "seconds": round(outcome.seconds, 1),
        }
    ).decode()
