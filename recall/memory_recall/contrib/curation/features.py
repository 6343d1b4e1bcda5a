"""What two memories have in common, as numbers from which `decisions` judges whether one restates the other.

Everything here is computed from the two memories, from how rare their words and tags are in the table, and from the
other pairs that were found with them, without a language model.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from memory_recall.schema.columns.keys import MemoryId

# Words by which English notes say that one thing took the place of another, that something is new, and that something
# known is said again.
_CHANGE = (
    r"replac(?:e|es|ed|ing|ement)|supersed\w+|(?:gave|gives?|made|makes?) way|no more|no longer|removed?|retired?"
    r"|mov(?:e|es|ed)|chang(?:e|es|ed)|went|gone|out of|switch(?:ed|es)?|dropped|instead|migrated?|in favou?r of"
    r"|stopped|renamed"
)
_NOVELTY = r"now|new|edition|from (?:now|today|tomorrow)|since|any ?more|became|becomes|used to|upgraded|this year"
_REPETITION = (
    r"again|still|remains?|stays?|unchanged|as (?:before|ever|usual)|once more|remind\w*|restat\w+|repeat\w*|recap"
    r"|confirm\w*|check(?:ed)?|renew\w*|as of|state of|same"
)
CHANGE, NOVELTY, REPETITION = (
    re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for words in (_CHANGE, _NOVELTY, _REPETITION)
)


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory that is neither sensitive nor deleted nor superseded. `terms` are its lexemes."""

    id: MemoryId
    content: str = field(repr=False)
    tags: frozenset[str] = field(repr=False)
    terms: frozenset[str] = field(repr=False)
    created_at: datetime
    text_hash: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two memories of one owner, and the cosine similarity of their vectors (-1 to 1)."""

    older: Memory
    newer: Memory
    cosine: float

    @property
    def ids(self) -> tuple[MemoryId, MemoryId]:
        """The ids of the older and of the newer memory."""
        return self.older.id, self.newer.id


@dataclass(frozen=True, slots=True)
class Frequencies:
    """How many memories there are, and how many of them have each term and each tag; what is missing has one."""

    rows: int
    terms: Mapping[str, int]
    tags: Mapping[str, int]

    def term_weight(self, term: str) -> float:
        """Return the inverse document frequency of a term, from 0 for a term of all rows to about log(rows)."""
        return _inverse_frequency(self.rows, self.terms.get(term, 1))

    def tag_weight(self, tag: str) -> float:
        """Return the inverse document frequency of a tag."""
        return _inverse_frequency(self.rows, self.tags.get(tag, 1))


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a pair.

    `term_overlap` and `tag_overlap` (0 to 1) are the weights of what both have, divided by the smaller memory's weight.
    `shared_tags` counts tags. `rarest_term` is the weight of the rarest common term, as a share of the largest weight.
    `lead_over_older` and `lead_over_newer` say by how much the pair is more similar than the next best pair with the
    same newer memory, and with the same older memory; they are negative if it is not the most similar. `cue` is 1 if
    the newer text has a word that says that something changed, is new or is said again. `newer_words` is the number of
    words of the newer text, divided by 50.
    """

    cosine: float
    term_overlap: float
    tag_overlap: float
    shared_tags: float
    rarest_term: float
    lead_over_older: float
    lead_over_newer: float
    cue: float
    newer_words: float


def compute_features(pairs: Sequence[Pair], frequencies: Frequencies) -> list[Features]:
    """Return the features of all pairs that were found together, in their order."""
    overlaps = [_overlaps(pair, frequencies) for pair in pairs]
    similarity = [pair.cosine + 0.5 * (tags + terms) for pair, (terms, tags, _) in zip(pairs, overlaps, strict=True)]
    over_older = _leads(((pair.newer.id for pair in pairs)), similarity)
    over_newer = _leads(((pair.older.id for pair in pairs)), similarity)
    return [
        Features(
            cosine=pair.cosine,
            term_overlap=terms,
            tag_overlap=tags,
            shared_tags=float(len(pair.older.tags & pair.newer.tags)),
            rarest_term=rarest,
            lead_over_older=over_older[number],
            lead_over_newer=over_newer[number],
            cue=float(any(words.search(pair.newer.content) for words in (CHANGE, NOVELTY, REPETITION))),
            newer_words=len(pair.newer.content.split()) / 50,
        )
        for number, (pair, (terms, tags, rarest)) in enumerate(zip(pairs, overlaps, strict=True))
    ]


def _inverse_frequency(rows: int, having: int) -> float:
    return math.log((rows + 1) / (min(having, rows) + 0.5))


def _overlaps(pair: Pair, frequencies: Frequencies) -> tuple[float, float, float]:
    """Return `term_overlap`, `tag_overlap` and `rarest_term` of a pair."""
    terms = {term: frequencies.term_weight(term) for term in pair.older.terms | pair.newer.terms}
    tags = {tag: frequencies.tag_weight(tag) for tag in pair.older.tags | pair.newer.tags}
    common = pair.older.terms & pair.newer.terms
    rarest = max((terms[term] for term in common), default=0.0) / _inverse_frequency(frequencies.rows, 1)
    return (
        _overlap(pair.older.terms, pair.newer.terms, terms),
        _overlap(pair.older.tags, pair.newer.tags, tags),
        rarest,
    )


def _overlap(one: frozenset[str], other: frozenset[str], weights: Mapping[str, float]) -> float:
    smaller = min(sum(weights[each] for each in one), sum(weights[each] for each in other))
    return sum(weights[each] for each in one & other) / smaller if smaller else 0.0


def _leads(keys: Iterable[MemoryId], similarity: Sequence[float]) -> list[float]:
    """Return by how much each pair's similarity exceeds that of the best other pair with the same key, or all of it."""
    groups: dict[MemoryId, list[int]] = defaultdict(list)
    for number, key in enumerate(keys):
        groups[key].append(number)
    leads = [0.0] * len(similarity)
    for numbers in groups.values():
        best, *others = sorted(numbers, key=lambda number: -similarity[number])
        leads[best] = similarity[best] - (similarity[others[0]] if others else 0.0)
        for number in others:
            leads[number] = similarity[number] - similarity[best]
    return leads
