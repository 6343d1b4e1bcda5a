"""Compares recall with what a memory store searches with today, in the tables that open the recall report.

Today a local store searches by SQLite's FTS5, and a store in Postgres by `ts_rank` over the parsed words. Both orders
blend importance in. They are compared with each leg of recall and with hybrid recall in its default fusion.
"""

from collections.abc import Iterator, Mapping, Sequence

from memory_bench.harness.runner import RunResult
from memory_bench.harness.scoring import MEASURES
from memory_bench.harness.set_report import compare_runs
from memory_recall.evaluation.significance import Comparison

Runs = Mapping[str, RunResult]
"""The runs of one labelled set, by the name of the retriever."""

FTS5, TS_RANK = "sqlite-fts5", "pg-ts-rank"
LEXICAL, DENSE, HYBRID = "pg-bm25", "dense-hnsw", "hybrid"
LEGS = (LEXICAL, DENSE)
BY_RELEVANCE = {"FTS5": FTS5, "ts_rank": TS_RANK, "lexical": LEXICAL, "dense": DENSE, "hybrid": HYBRID}
BY_IMPORTANCE = {
    "FTS5": f"{FTS5}-by-importance",
    "ts_rank": f"{TS_RANK}-by-importance",
    "lexical": f"{LEXICAL}-by-importance",
    "dense": "dense-by-importance",
    "hybrid": f"{HYBRID}-by-importance",
}
_SIGNIFICANT = 0.05


def against_production(runs: Runs, *, seed: int) -> dict[str, dict[str, float]]:
    """Return, for each measure, by how much hybrid recall exceeds FTS5, and the p value of this gain."""
    found = {}
    for measure in MEASURES:
        gain = compare_runs(runs[FTS5], runs[HYBRID], measure, seed=seed)
        found[measure] = {"gain": round(gain.difference, 4), "p": round(gain.p_value, 4)}
    return found


def strata(runs: Runs) -> list[str]:
    """Return the names of a set's strata, sorted."""
    return sorted({answer.stratum for answer in runs[HYBRID].answers})


def sections(sets: Mapping[str, Runs], *, seed: int) -> dict[str, Iterator[Sequence[str]]]:
    """Return the tables that open the report, each as rows under its title; `sets` are the runs by the set's name."""
    return {
        "What a store searches with today, and recall": _means(sets, BY_RELEVANCE),
        "Hybrid recall against what a store searches with today": _gains(sets, BY_RELEVANCE, seed=seed),
        "Hybrid recall against the better of its legs": _against_better_leg(sets, seed=seed),
        "On which sets hybrid recall is better than the better of its legs (p < .05)": _verdicts(sets, seed=seed),
        "The same, ordered by importance": _means(sets, BY_IMPORTANCE),
        "Hybrid recall against today's search, ordered by importance": _gains(sets, BY_IMPORTANCE, seed=seed),
    }


def _means(sets: Mapping[str, Runs], arms: Mapping[str, str]) -> Iterator[Sequence[str]]:
    yield ["set", "measure", *arms]
    for name, runs in sets.items():
        for measure in MEASURES:
            yield [name, measure, *(f"{runs[arm].means()[measure]:.3f}" for arm in arms.values())]


def _gains(sets: Mapping[str, Runs], arms: Mapping[str, str], *, seed: int) -> Iterator[Sequence[str]]:
    against = ("FTS5", "ts_rank")
    yield ["set", "stratum", "questions", "measure", *(f"over {one}, 95 % interval (p)" for one in against)]
    for name, runs in sets.items():
        hybrid = runs[arms["hybrid"]]
        for stratum in (None, *strata(runs)):
            count = len(hybrid.scores("recall@10", stratum))
            for measure in MEASURES:
                found = [compare_runs(runs[arms[one]], hybrid, measure, seed=seed, stratum=stratum) for one in against]
                yield [name, stratum or "all", str(count), measure, *(with_interval(one) for one in found)]


def _verdict(found: Comparison) -> str:
    if found.p_value >= _SIGNIFICANT:
        return "not significant"
    return "better" if found.difference > 0 else "worse"


def _against_better_leg(sets: Mapping[str, Runs], *, seed: int) -> Iterator[Sequence[str]]:
    yield ["set", "measure", "lexical", "dense", "hybrid", "difference", "95 % interval", "p", "hybrid is"]
    for name, runs in sets.items():
        for measure in MEASURES:
            found = compare_runs(runs[_better_leg(runs, measure)], runs[HYBRID], measure, seed=seed)
            values = [f"{runs[arm].means()[measure]:.3f}" for arm in (*LEGS, HYBRID)]
            interval = f"{found.low:+.3f} to {found.high:+.3f}"
            cells = [f"{found.difference:+.3f}", interval, f"{found.p_value:.4f}", _verdict(found)]
            yield [name, measure, *values, *cells]


def _better_leg(runs: Runs, measure: str) -> str:
    return max(LEGS, key=lambda leg: runs[leg].means()[measure])


def _verdicts(sets: Mapping[str, Runs], *, seed: int) -> Iterator[Sequence[str]]:
    verdicts = ("better", "not significant", "worse")
    yield ["measure", *verdicts]
    for measure in MEASURES:
        names: dict[str, list[str]] = {one: [] for one in verdicts}
        for name, runs in sets.items():
            found = compare_runs(runs[_better_leg(runs, measure)], runs[HYBRID], measure, seed=seed)
            names[_verdict(found)].append(name)
        yield [measure, *(", ".join(names[one]) or "none" for one in verdicts)]


def with_interval(found: Comparison) -> str:
    """Return a difference with its 95 % interval and, in brackets, its p value."""
    return f"{found.difference:+.3f}, {found.low:+.3f} to {found.high:+.3f} ({found.p_value:.4f})"
