"""Reads which memories answer a question, as a list of ids or as a grade of each memory that was judged.

Every form of labelled questions has the same two fields: `relevant_ids` lists the memories that answer the question,
and `grades` maps the id of each judged memory to its grade, such as {"17": 3, "90": 1}. One of them is enough.

The keys of a JSON object are texts, so `grades` cannot tell the id 17 from the id "17". As no table has both kinds of
ids, a text that is a whole number is read as this number, in both fields and in the results that are scored.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memory_recall.schema.columns.keys import MemoryId

HIGHEST_GRADE = 3
RELEVANT_FROM = 2  # a memory of this grade or above answers the question, wholly or in part
_NUMBER = re.compile("0|-?[1-9][0-9]{0,18}")  # as a key of an integer type is written


@dataclass(frozen=True, slots=True)
class Judgements:
    """The judgements of one question.

    `relevant` holds the ids of the memories that answer the question. `grades` maps the ids of judged memories to their
    grades, from 0 (unrelated) to `HIGHEST_GRADE`; it is empty if the judgements are binary.
    """

    relevant: frozenset[MemoryId]
    grades: Mapping[MemoryId, int]

    @property
    def judged(self) -> frozenset[MemoryId]:
        """The ids of all memories that the judgements name."""
        return self.relevant | self.grades.keys()


def parse_judgements(record: Mapping[str, Any]) -> Judgements:
    """Read the fields `relevant_ids` and `grades` of one question.

    Raises:
        ValueError: a field is malformed, both are missing, they contradict each other, or no memory is relevant.
    """
    listed, graded = record.get("relevant_ids"), record.get("grades")
    grades = {} if graded is None else _grades(graded)
    if listed is not None and (not isinstance(listed, list) or not all(type(one) in {int, str} for one in listed)):
        raise ValueError("`relevant_ids` must be a list of ids")
    from_grades = frozenset(one for one, grade in grades.items() if grade >= RELEVANT_FROM)
    relevant = from_grades if listed is None else frozenset(map(judged_id, listed))
    if grades and relevant != from_grades:
        raise ValueError(f"`relevant_ids` must list exactly the memories that `grades` gives {RELEVANT_FROM} or more")
    if not relevant:
        raise ValueError(f"`relevant_ids`, or a grade of {RELEVANT_FROM} or more in `grades`, must name a memory")
    return Judgements(relevant, grades)


def judged_id(identity: MemoryId) -> MemoryId:
    """Return an id as `Judgements` have it: a text that is a whole number, without leading zeros, is this number."""
    return int(identity) if isinstance(identity, str) and _NUMBER.fullmatch(identity) else identity


def _grades(graded: object) -> dict[MemoryId, int]:
    if not isinstance(graded, dict) or not all(
        type(one) is int and 0 <= one <= HIGHEST_GRADE for one in graded.values()
    ):
        raise ValueError(f"`grades` must map ids to grades from 0 to {HIGHEST_GRADE}")
    return {judged_id(identity): grade for identity, grade in graded.items()}
