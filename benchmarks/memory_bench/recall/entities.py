"""An entity leg: finds rows that share entities with the question, and rows that share entities with those rows.

This leg is measured in the ablation and is not part of the product (ADR 3). Entities are found by regular expressions
(paths, addresses, mentions, code in backticks, and runs of capitalised words that do not begin a sentence) and, if it
is installed, by spaCy's small English model. A row that shares entities with the question scores by their rarity. A row
that shares entities with such a row gets at most half of that row's score.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from memory_bench.harness.dataset import Memory, Query

Extractor = Callable[[str], frozenset[str]]
Kind = Literal["spacy", "regex"]

_DEPTH = 50
_HOP = 0.5
_EXPANDED = 10  # the best direct rows, from which rows one step away are reached
_COMMON = 0.05  # entities in a greater share of the rows are ignored
_PATTERNS = (
    re.compile(r"https?://\S+"),
    re.compile(r"(?<!\w)@\w+"),
    re.compile(r"`([^`]+)`"),
    re.compile(r"(?:[\w.-]*/)+[\w-]+(?:\.[\w-]+)*"),
    re.compile(r"\b\w+(?:[-_.]\w+)+\b"),
)
_CAPITALISED = re.compile(r"\b[A-Z][\w'-]*(?:\s+[A-Z][\w'-]*)*")
_OPENING = re.compile(r"(?:^|[.!?:]\s+)([A-Z][\w'-]*)")


def by_pattern(text: str) -> frozenset[str]:
    """Return the entities that the regular expressions find in a text, in lower case."""
    found = {match.group(match.lastindex or 0) for pattern in _PATTERNS for match in pattern.finditer(text)}
    openings = {match.start(1) for match in _OPENING.finditer(text)}
    for match in _CAPITALISED.finditer(text):
        words = match.group().split()
        if match.start() in openings:  # a sentence begins with a capital anyway
            words = words[1:]
        found.update(words)
        if len(words) > 1:
            found.add(" ".join(words))
    return frozenset(one.lower().removesuffix("'s") for one in found if len(one) > 1)


def extractor() -> tuple[Kind, Extractor]:
    """Return the function that extracts entities: by regular expressions, and also by spaCy if it is installed.

    Returns the pair (kind, function); the kind is "spacy" if spaCy is used, otherwise "regex".
    """
    try:
        import spacy

        model = spacy.load("en_core_web_sm", enable=["tok2vec", "ner"])
    except (ImportError, OSError):
        return "regex", by_pattern
    return (
        "spacy",
        lambda text: (
            frozenset(entity.text.lower().removesuffix("'s") for entity in model(text).ents) | by_pattern(text)
        ),
    )


class EntityLeg:
    """A leg that scores rows by the entities that they share with a question."""

    def __init__(self, memories: Sequence[Memory], extract: Extractor) -> None:
        self._extract = extract
        self._scopes = {memory.id: memory.scope for memory in memories}
        self._of_row = {memory.id: extract(memory.content) for memory in memories}
        self._rows: dict[str, list[int]] = defaultdict(list)
        for row, entities in self._of_row.items():
            for entity in entities:
                self._rows[entity].append(row)
        count = len(memories)
        limit = max(5.0, _COMMON * count)
        self._rarity = {
            entity: float(np.log(1 + count / len(rows))) for entity, rows in self._rows.items() if len(rows) <= limit
        }

    def scores(self, query: Query) -> Mapping[int, float]:
        """Return the ids of at most fifty rows with their scores, from 0 to 1; the best row has the score 1."""
        direct = self._sharing(self._extract(query.text), query.scope)
        total: dict[int, float] = dict(direct)
        nearest = sorted(direct, key=lambda row: (-direct[row], row))[:_EXPANDED]
        for row in nearest:
            reached = self._sharing(self._of_row[row], query.scope)
            most = max(reached.values(), default=1.0)
            for other, score in reached.items():
                if other != row:
                    total[other] = total.get(other, 0.0) + _HOP * direct[row] * score / most
        kept = sorted(total, key=lambda row: (-total[row], row))[:_DEPTH]
        return {row: total[row] / total[kept[0]] for row in kept}

    def _sharing(self, entities: Iterable[str], scope: str | None) -> dict[int, float]:
        found: dict[int, float] = defaultdict(float)
        for entity in entities:
            rarity = self._rarity.get(entity)
            for row in self._rows[entity] if rarity is not None else ():
                if scope is None or self._scopes[row] == scope:
                    found[row] += rarity or 0.0
        return dict(found)
