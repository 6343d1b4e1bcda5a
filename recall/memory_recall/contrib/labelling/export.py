"""Writes judged questions in the form that `memory evaluate`, `memory tune` and the gate of a model swap read."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from memory_recall.contrib.labelling.agreement import Agreement, agreement
from memory_recall.contrib.labelling.labels import Labels
from memory_recall.evaluation.judgements import RELEVANT_FROM

LEAST_OF_STRATUM = 50  # questions; the means of fewer have intervals that are too wide to tell variants apart


@dataclass(frozen=True, slots=True)
class Summary:
    """The counts of questions, the agreement of the judgements, and warnings about strata with too few questions.

    `strata` counts the questions that were exported. `unanswered` counts those for which no memory of the pool is
    relevant, and `unjudged` those whose pool is not judged yet; neither can be measured, so they are not exported.
    """

    questions: int
    strata: dict[str, int]
    unanswered: int
    unjudged: int
    kappa: Agreement
    warnings: list[str]


def exported_questions(labels: Labels) -> list[dict[str, Any]]:
    """Return the judged questions that at least one memory answers, each as one JSON object.

    `relevant_ids` holds the ids of the memories of grade 2 and 3, and `grades` maps the id of each judged memory to its
    grade. The grades are those of the first round.
    """
    lines = []
    for question in labels.questions:
        pool = labels.pools.get(question.query_id, [])
        grades = labels.grades.get((question.query_id, 1), {})
        relevant = sorted(one for one in pool if grades.get(one, 0) >= RELEVANT_FROM)
        if labels.is_judged(question.query_id) and relevant:
            line: dict[str, Any] = {"query_id": question.query_id, "text": question.text, "stratum": question.stratum}
            if question.conv is not None:
                line["conv"] = question.conv
            lines.append(line | {"relevant_ids": relevant, "grades": {str(one): grades[one] for one in sorted(pool)}})
    return lines


def as_json_lines(questions: list[dict[str, Any]]) -> bytes:
    """Return the questions as JSON lines, one question a line."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in questions).encode()


def summarise(labels: Labels) -> Summary:
    """Return how many questions can be exported, how well the judgements agree, and which strata are too small."""
    exported = exported_questions(labels)
    judged = sum(labels.is_judged(question.query_id) for question in labels.questions)
    strata = dict(sorted(Counter(line["stratum"] for line in exported).items()))
    warnings = [
        f"Stratum {name} has {count} questions: below {LEAST_OF_STRATUM} its means tell little."
        for name, count in strata.items()
        if count < LEAST_OF_STRATUM
    ]
    return Summary(
        questions=len(exported),
        strata=strata,
        unanswered=judged - len(exported),
        unjudged=len(labels.questions) - judged,
        kappa=agreement(labels),
        warnings=warnings,
    )
