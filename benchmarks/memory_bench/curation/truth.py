"""The pairs that belong together: the data set's restatements, their chains, and further pairs that were judged."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal

Kind = Literal["says_again", "replaces"]
PairOfIds = tuple[int, int]
"""The ids of the older and of the newer memory."""


@dataclass(frozen=True, slots=True)
class Truth:
    """Which pairs belong together.

    `kinds` are the restatements of the data set. `closure` also has the pairs that follow from several of them: the
    third memory of a chain restates the first. `judged` are further pairs that were judged to be restatements. `chains`
    maps each memory of a chain to the chain's oldest memory.
    """

    kinds: dict[PairOfIds, Kind]
    closure: frozenset[PairOfIds]
    judged: frozenset[PairOfIds]
    chains: dict[int, int]

    def halves(self, pairs: Sequence[PairOfIds], *, seed: int | None = None) -> list[int]:
        """Return the half, 0 or 1, that each pair belongs to by its newer memory.

        Without a seed, whole chains are dealt to the halves in turn, by the age of their oldest memory; with a seed, by
        chance. A memory without a chain belongs to a half by its id.
        """
        oldest = sorted(set(self.chains.values()))
        if seed is not None:
            random.Random(seed).shuffle(oldest)  # noqa: S311  (a reproducible draw, no secret)
        half_of = {chain: place % 2 for place, chain in enumerate(oldest)}
        return [half_of[self.chains[newer]] if newer in self.chains else newer % 2 for _, newer in pairs]


def read_truth(restatements: Path, judgements: Path) -> Truth:
    """Read the restatements of a data set, and the judgements of further pairs."""
    lines = [json.loads(line) for line in restatements.read_text(encoding="utf-8").splitlines()]
    kinds: dict[PairOfIds, Kind] = {(line["restates"], line["id"]): line["kind"] for line in lines}
    judged = [json.loads(line) for line in judgements.read_text(encoding="utf-8").splitlines()]
    further = {(line["older"], line["newer"]) for line in judged if line["judged"] != "neither"}
    chains = chains_of(kinds)
    members: dict[int, list[int]] = {}
    for memory, oldest in chains.items():
        members.setdefault(oldest, []).append(memory)
    closure = (pair for chain in members.values() for pair in combinations(sorted(chain), 2))
    whole = frozenset(closure)
    return Truth(kinds, whole, frozenset(further) - whole, chains)


def chains_of(pairs: Iterable[PairOfIds]) -> dict[int, int]:
    """Return, for each memory that occurs in a pair, the oldest one of its chain; a shared memory joins two pairs."""
    oldest: dict[int, int] = {}
    for older, newer in sorted(pairs, key=lambda pair: pair[1]):
        first = oldest.setdefault(older, older)
        former = oldest.get(newer, first)
        for memory, known in list(oldest.items()):
            if known == former:
                oldest[memory] = first
        oldest[newer] = first
    return oldest
