"""Reads which memories answer a question, as a list of ids or as a grade of each memory that was judged.

Every form of labelled questions has the same two fields: `relevant_ids` lists the memories that answer the question,
and `grades` maps the id of each judged memory to its grade, such as {"17": 3, "90": 1}. One of them is enough.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HIGHEST_GRADE = 3
RELEVANT_FROM = 2  # a memory of this grade or above answers the question, wholly or in part


@dataclass(frozen=True, slots=True)
class Judgements:
    """The judgements of one question.

    `relevant` holds the ids of the memories that answer the question. `grades` maps the ids of judged memories to their
    grades, from 0 (unrelated) to `HIGHEST_GRADE`; it is empty if the judgements are binary.
    """

    relevant: frozenset[int]
    grades: Mapping[int, int]

    @property
    def judged(self) -> frozenset[int]:
        """The ids of all memories that the judgements name."""
        return self.relevant | self.grades.keys()


def parse_judgements(record: Mapping[str, Any]) -> Judgements:
    """Read the fields `relevant_ids` and `grades` of one question.

    Raises:
        ValueError: a field is malformed, both are missing, they contradict each other, or no memory is relevant.
    """
    listed, graded = record.get("relevant_ids"), record.get("grades")
    grades = {} if graded is None else _grades(graded)
    if listed is not None and (not isinstance(listed, list) or not all(type(one) is int for one in listed)):
        raise ValueError("`relevant_ids` must be a list of ids")
    from_grades = frozenset(one for one, grade in grades.items() if grade >= RELEVANT_FROM)
    relevant = from_grades if listed is None else frozenset(listed)
    if grades and relevant != from_grades:
        raise ValueError(f"`relevant_ids` must list exactly the memories that `grades` gives {RELEVANT_FROM} or more")
    if not relevant:
        raise ValueError(f"`relevant_ids`, or a grade of {RELEVANT_FROM} or more in `grades`, must name a memory")
    return Judgements(relevant, grades)


def _grades(graded: object) -> dict[int, int]:
    if not isinstance(graded, dict) or not all(
        type(one) is int and 0 <= one <= HIGHEST_GRADE for one in graded.values()
    ):
        raise ValueError(f"`grades` must map ids to grades from 0 to {HIGHEST_GRADE}")
    try:
        return {int(identity): grade for identity, grade in graded.items()}
    except ValueError:
        raise ValueError("`grades` must map ids, which are whole numbers, to grades") from None
