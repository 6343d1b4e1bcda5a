"""What is asked of which store: questions with an answer, and prompts without one.

A store is what one recall searches: a table, or one user's memories in it. Each store gets the questions of its own
set, and of prompts without an answer everyday ones and questions of each other family. The questions of the other
conversations of a set, and the near misses of the notes, are about the same people and things and are judged apart.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memory_bench.harness.dataset import Dataset
from memory_bench.postgres import OwnWords
from memory_bench.recall.languages import CONFIGURATIONS, is_of_languages, part
from memory_bench.report import REPOSITORY
from memory_recall.indexing.usual_cosine import everyday_prompts

NOTES, CONVERSATIONS, ENCYCLOPEDIA, LANGUAGES = "notes", "conversations", "encyclopedia", "languages"
FAMILIES: Mapping[str, str] = {
    "homelab": NOTES,
    "locomo": CONVERSATIONS,
    "2wiki-101": ENCYCLOPEDIA,
    "hotpotqa-train100": ENCYCLOPEDIA,
    "musique-train100": ENCYCLOPEDIA,
    "xquad-5": LANGUAGES,
}
"""The family of each set. Each family counts alike, and in it each store."""

QUESTION, LEARNT, EVERYDAY, STRANGER = "question", "everyday, learnt", "everyday", "of another family"
SIBLING, NEAR_MISS = "of another conversation", "near miss"
WITHOUT_ANSWER = (EVERYDAY, STRANGER)
"""The kinds of prompts without an answer that are judged; `LEARNT` ones take part in fits alone."""

_DRAWN = 75  # questions of each other family, and of the other conversations
_EXAMPLES = REPOSITORY / "examples"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question or a prompt; `relevant` has the ids of the memories that answer it, and is empty without an answer."""

    kind: str
    text: str
    relevant: frozenset[object] = frozenset()


@dataclass(frozen=True, slots=True)
class Store:
    """What one recall searches: the table of a set, or one user's memories in it. `words` is of a language's table."""

    name: str
    family: str
    dataset: Dataset
    user: str | None
    words: OwnWords | None
    asked: tuple[Asked, ...]


def can_be_judged(sets: Sequence[Dataset]) -> bool:
    """Return whether every family has a set."""
    return {FAMILIES.get(one.name) for one in sets} >= set(FAMILIES.values())


def stores(sets: Sequence[Dataset], languages: Sequence[str], *, seed: int) -> list[Store]:
    """Return the stores of all families, with what is asked of each; of the sets of languages only these languages."""
    drawn = np.random.default_rng(seed)
    tables = list(_tables(sets, languages))
    questions = {(one.name, user): _questions(one, user) for one, user, _ in tables}
    families = {(one.name, user): _family(one) for one, user, _ in tables}
    found = []
    for dataset, user, words in tables:
        here = (dataset.name, user)
        asked = [*questions[here], *_everyday()]
        for family in dict.fromkeys(families.values()):
            others = [one for key, of in questions.items() if key != here and families[key] == family for one in of]
            if family != families[here]:
                asked += _drawn(others, STRANGER, drawn)
            elif user is not None:
                asked += _drawn(others, SIBLING, drawn)
        if families[here] == NOTES:
            asked += [Asked(NEAR_MISS, text) for text in _texts("homelab/unanswerable.jsonl")]
        name = dataset.name if user is None else f"{dataset.name}, {user}"
        found.append(Store(name, families[here], dataset, user, words, tuple(asked)))
    return found


def _tables(sets: Sequence[Dataset], languages: Sequence[str]) -> Iterator[tuple[Dataset, str | None, OwnWords | None]]:
    """Yield each table with each user whose memories are searched in it, or None for the whole table."""
    for dataset in sets:
        if dataset.name not in FAMILIES:
            continue
        if is_of_languages(dataset):
            for language in languages:
                yield part(dataset, language), None, OwnWords(CONFIGURATIONS[language], "C")
        else:
            for user in sorted({query.scope for query in dataset.queries}, key=str):
                yield dataset, user, None


def _family(dataset: Dataset) -> str:
    return next(family for name, family in FAMILIES.items() if dataset.name.startswith(name))


def _questions(dataset: Dataset, user: str | None) -> list[Asked]:
    own = [query for query in dataset.queries if user is None or query.scope == user]
    return [Asked(QUESTION, query.text, frozenset(query.relevant)) for query in own]


def _everyday() -> list[Asked]:
    """Return the everyday prompts that the usual cosine is not found by; every second one takes part in fits."""
    rest = [text for text in _texts("everyday/prompts.jsonl") if text not in set(everyday_prompts())]
    return [Asked(EVERYDAY if place % 2 else LEARNT, text) for place, text in enumerate(rest)]


def _drawn(others: Sequence[Asked], kind: str, drawn: np.random.Generator) -> list[Asked]:
    chosen = drawn.permutation(len(others))[:_DRAWN]
    return [Asked(kind, others[int(place)].text) for place in chosen]


def _texts(file: str) -> list[str]:
    lines = (_EXAMPLES / file).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]
