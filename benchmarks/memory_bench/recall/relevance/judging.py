"""Judges relevance by what it keeps and what it holds back, with weights of the other families (ADR 41)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memory_bench.harness.regression import Array, logistic, regress
from memory_bench.recall.relevance.observing import Observed, Recalled
from memory_bench.recall.relevance.stores import (
    FAMILIES,
    LEARNT,
    NEAR_MISS,
    QUESTION,
    SIBLING,
    STRANGER,
    WITHOUT_ANSWER,
)
from memory_recall.search.relevance import LEVELS

SHOWN = 5  # memories of a prompt, of which those in vain are counted
_TENTHS = 10
_NAMES = tuple(dict.fromkeys(FAMILIES.values()))

Chosen = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Weights:
    """A logistic function of closeness and words, or of words alone."""

    intercept: float
    slopes: tuple[float, ...]

    def relevance(self, features: Array) -> Array:
        """Return the relevance of memories, given an array of shape (memories, 2) of their closeness and words."""
        return logistic(self.intercept + features[:, -len(self.slopes) :] @ np.array(self.slopes))


@dataclass(frozen=True, slots=True)
class Judged:
    """What a level keeps and holds back, in the mean of the families and in the worst one; by family beside it.

    All are shares from 0 to 1 but `in_vain`, the memories of the first five that a prompt without an answer still gets.
    `reliability_error` is the mean distance of relevance from the observed share of relevant memories, by tenths.
    """

    kept: Mapping[str, float]
    empty: Mapping[str, float]
    in_vain: float
    siblings_empty: float
    near_misses_empty: float
    reliability: Sequence[tuple[float, float]]

    @property
    def reliability_error(self) -> float:
        """The mean distance of relevance from the observed share, over the tenths that have memories."""
        return float(np.mean([abs(expected - observed) for expected, observed in self.reliability]))

    def figures(self) -> dict[str, float]:
        """Return the figures of the benchmark's last line, to four digits, without those that were not measured."""
        kept, empty = list(self.kept.values()), list(self.empty.values())
        found = {
            "kept": float(np.mean(kept)),
            "empty_when_unanswerable": float(np.mean(empty)),
            "worst_family_kept": min(kept),
            "worst_family_empty": min(empty),
            "near_misses_empty": self.near_misses_empty,
            "siblings_empty": self.siblings_empty,
            "rows_in_vain_per_prompt": self.in_vain,
            "reliability_error": self.reliability_error,
        }
        return {name: round(value, 4) for name, value in found.items() if not np.isnan(value)}


class Table:
    """What was recalled, as arrays of one element for each memory."""

    def __init__(self, observed: Observed) -> None:
        rows = [one for one in observed.recalled if one.closeness is not None]
        self.asked = observed.asked
        self.features: Array = np.array([[one.closeness, one.words] for one in rows], dtype=np.float64)
        self.relevant: Chosen = np.array([one.relevant for one in rows])
        self.served: Array = np.array([one.relevance for one in rows])
        self.family, self.store, self.kind = (self._texts(rows, name) for name in ("family", "store", "kind"))
        self.place = np.array([one.place for one in rows])
        self.number = np.array([one.asked for one in rows])

    @staticmethod
    def _texts(rows: Sequence[Recalled], name: str) -> npt.NDArray[np.str_]:
        return np.array([getattr(one, name) for one in rows])

    def stores_of(self, family: str) -> list[str]:
        """Return the names of a family's stores."""
        return sorted({str(one) for one in self.store[self.family == family]})

    def learnt(self, families: Sequence[str]) -> tuple[Chosen, Array]:
        """Return which memories take part in a fit on these families, and how many times each counts.

        Relevant memories count as much as those of prompts without an answer, of which everyday ones and questions of
        other families count alike; so does each family.
        """
        counts = np.zeros(len(self.relevant))
        for family in families:
            here = self.family == family
            for chosen, share in (
                (here & (self.kind == QUESTION) & self.relevant, 1.0),
                (here & (self.kind == LEARNT), 0.5),
                (here & np.isin(self.kind, [STRANGER, SIBLING]), 0.5),
            ):
                counts[chosen] = share / max(1, int(chosen.sum()))
        return counts > 0, counts * 1e3 / len(families)


def fit(table: Table, families: Sequence[str], *, words_alone: bool = False) -> Weights:
    """Fit the weights on some families."""
    chosen, counts = table.learnt(families)
    features = table.features[chosen][:, 1:] if words_alone else table.features[chosen]
    intercept, slopes = regress(features, table.relevant[chosen].astype(np.float64), counts[chosen])
    return Weights(intercept, tuple(float(one) for one in slopes))


def out_of_fold(table: Table, *, words_alone: bool = False) -> Array:
    """Return the relevance of every memory by weights that were fitted on the other families."""
    found = np.zeros(len(table.relevant))
    for family in _NAMES:
        others = [one for one in _NAMES if one != family]
        weights = fit(table, others, words_alone=words_alone)
        found[table.family == family] = weights.relevance(table.features[table.family == family])
    return found


def judge(table: Table, relevance: Array, *, by_words: bool = False) -> Judged:
    """Judge the level `likely` with these relevances, over the families that the table has."""
    level = LEVELS["likely"]
    assert level is not None  # noqa: S101  (it demands something)
    returned = relevance >= (level.by_words if by_words else level.by_meaning)
    families = [one for one in _NAMES if table.stores_of(one)]

    def of_family(family: str, share: Callable[[str], float]) -> float:
        return float(np.nanmean([share(store) for store in table.stores_of(family)]))

    def empty(store: str) -> float:
        return float(np.mean([_empty(table, returned, store, kind) for kind in WITHOUT_ANSWER]))

    def in_vain(store: str) -> float:
        return float(np.mean([_in_vain(table, returned, store, kind) for kind in WITHOUT_ANSWER]))

    def apart(kind: str) -> float:
        found = [_empty(table, returned, store, kind) for store, asked in table.asked if asked == kind]
        return float(np.mean(found)) if found else float("nan")

    return Judged(
        kept={family: of_family(family, lambda store: _kept(table, returned, store)) for family in families},
        empty={family: of_family(family, empty) for family in families},
        in_vain=float(np.mean([of_family(family, in_vain) for family in families])),
        siblings_empty=apart(SIBLING),
        near_misses_empty=apart(NEAR_MISS),
        reliability=list(_reliability(table, relevance, families)),
    )


def _kept(table: Table, returned: Chosen, store: str) -> float:
    relevant = (table.store == store) & (table.kind == QUESTION) & table.relevant
    return float(returned[relevant].mean()) if relevant.any() else float("nan")


def _empty(table: Table, returned: Chosen, store: str, kind: str) -> float:
    here = (table.store == store) & (table.kind == kind) & returned
    return 1 - len(set(table.number[here].tolist())) / table.asked[store, kind]


def _in_vain(table: Table, returned: Chosen, store: str, kind: str) -> float:
    here = (table.store == store) & (table.kind == kind) & (table.place < SHOWN) & returned
    return float(here.sum()) / table.asked[store, kind]


def _reliability(table: Table, relevance: Array, families: Sequence[str]) -> Iterator[tuple[float, float]]:
    """Yield, for each tenth of relevance, its mean and the share of relevant memories among those that are judged."""
    counts = np.zeros(len(table.relevant))
    for family in families:
        here = table.family == family
        relevant = here & (table.kind == QUESTION) & table.relevant
        without = here & np.isin(table.kind, WITHOUT_ANSWER)
        for chosen in (relevant, without):
            counts[chosen] = 1 / max(1, int(chosen.sum()))
    tenth = np.minimum((relevance * _TENTHS).astype(int), _TENTHS - 1)
    for one in range(_TENTHS):
        here = (tenth == one) & (counts > 0)
        if here.any():
            weights = counts[here]
            yield (
                float(np.average(relevance[here], weights=weights)),
                float(np.average(table.relevant[here] & (table.kind[here] == QUESTION), weights=weights)),
            )
