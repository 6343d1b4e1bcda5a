"""Writes the report of the concept graph: the verdict, what each set chose, the sweep and the ablation."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from memory_bench.graph.ablation import CONFIGURATIONS, Scores, select
from memory_bench.graph.choice import admissible, multihop, nested, pooled_gains
from memory_bench.graph.nearness import THRESHOLDS
from memory_bench.graph.sets import GraphMeasurements, GraphScores
from memory_bench.graph.settings import legs as all_legs
from memory_bench.graph.verdict import Outcome, chosen_by_public_sets, judge_family
from memory_bench.harness import scoring
from memory_bench.report import write_json
from memory_bench.studies.gains import OWN_SET, Fold, corrected_p, greatest_by_chance
from memory_bench.studies.questions import MEASURES, RECALL
from memory_bench.studies.tables import Rows, by_set, cells, gains_cells, interval, own_rows, prompts_rows, write_report
from memory_recall.evaluation.significance import compare

_PAIRS = (("A", "B"), ("B", "C"), ("B", "D"), ("A", "D"))


def write(
    measured: Sequence[GraphMeasurements],
    outcome: Outcome,
    directory: Path,
    *,
    near: Sequence[Sequence[GraphScores]],
    ablation: Mapping[str, Scores],
    model: str,
    seed: int,
) -> None:
    """Write `report.md` and `summary.json`.

    `near` holds the sets' scores with concepts merged at each threshold of nearness, in the one setting that the public
    sets chose.
    """
    sets, prompts, first = ([getattr(one, name) for one in measured] for name in ("second", "prompts", "first"))
    shipped, first_outcome = chosen_by_public_sets(sets, prompts), judge_family(first, seed=seed)
    legs, weightings = zip(*first[0].settings, strict=True)
    sections = {
        "Each set by what the others choose (out of fold)": _folds(sets, nested(sets, prompts), outcome),
        "The same questions inside prompts": prompts_rows(prompts, outcome.prompts, "the graph"),
        f"{OWN_SET} by what the public sets choose": own_rows(outcome.own),
        "First family: each set by what the others choose": _folds(first, nested(first), first_outcome),
        "First family: the best of each leg, chosen and judged on all sets": _swept(first, legs, seed),
        "First family: the best of each weighting, chosen and judged on all sets": _swept(first, weightings, seed),
        "Second family: all weightings, chosen and judged on all sets": _swept(
            sets, [weighting for _, weighting in sets[0].settings], seed, prompts
        ),
        "Near concepts made one, in the setting that the public sets choose": _near(sets, shipped, near, seed),
        "Relevant memories that neither the lexical nor the dense leg has among its fifty": _beyond(first),
        "Ablation": _ablation(sets, ablation, seed=seed),
    }
    count = len(first[0].settings) + len(sets[0].settings) + len(near)
    opening = [
        f"# The concept graph as a third leg: {outcome.verdict}",
        (
            f"{model}; {count} settings against the default fusion without the graph leg, with the sets' importance. "
            "Rules and terms: ADR 26; p without further word is of a paired randomisation test, corrected p of the "
            "greatest gain of all settings."
        ),
        (
            f"Over {outcome.questions} multi-hop questions of all sets, out of fold: recall@10 "
            f"{interval(outcome.multihop['recall@10'])}, corrected p = {outcome.p:.4f}; nDCG@10 "
            f"{interval(outcome.multihop['ndcg@10'])}. The graph leg reaches {outcome.beyond} of {outcome.missing} "
            "relevant memories that neither other leg has. The first family gains "
            f"{interval(first_outcome.multihop['recall@10'])}."
        ),
    ]
    write_report(directory / "report.md", opening, sections)
    chosen = {each.judged: _name(sets[0], each.setting) for each in nested(sets, prompts)}
    data = {"model": model, "graph": outcome.figures(), "chosen": chosen, "shipped": _name(sets[0], shipped)}
    write_json(directory / "summary.json", data)


def _name(one: GraphScores, setting: int | None) -> str:
    return "none" if setting is None else "; ".join(map(str, one.settings[setting]))


def _folds(sets: Sequence[GraphScores], folds: Sequence[Fold], outcome: Outcome) -> Rows:
    heading = ("questions", *MEASURES, "multi-hop questions", *(f"{measure}, multi-hop" for measure in MEASURES))
    yield ["judged", "admissible", "chosen on the others", *heading]
    for one, each in zip(sets, folds, strict=True):
        hops = multihop(one)
        name = [one.name, str(each.admissible), _name(one, each.setting), str(len(one.strata))]
        yield [*name, *cells(outcome.sets[one.name]), str(int(hops.sum())), *gains_cells(one, each.setting, hops)]


def _beyond(sets: Sequence[GraphScores]) -> Rows:
    yield ["leg", *(one.name for one in sets), "all"]
    yield [
        "to be found",
        *(str(int(one.missing.sum())) for one in sets),
        str(sum(int(one.missing.sum()) for one in sets)),
    ]
    for leg in all_legs():
        place = next(place for place, (each, _) in enumerate(sets[0].settings) if each == leg)
        found = [int(one.beyond[place].sum()) for one in sets]
        yield [str(leg), *map(str, found), str(sum(found))]


def _swept(sets: Sequence[GraphScores], of: Sequence[object], seed: int, prompts: Sequence[GraphScores] = ()) -> Rows:
    """Yield, for each name in `of`, which names the settings, the admissible one that gains most in sight of all."""
    heading = ["recall@10, multi-hop", "nDCG@10, multi-hop", "corrected p", *(f"{one.name}, all" for one in sets)]
    heading += [f"{one.name}, prompts" for one in prompts]
    yield ["", "best setting", *heading]
    gains, allowed = pooled_gains(sets), admissible(sets, prompts)
    by_chance, means = greatest_by_chance(gains[:, :, RECALL], seed=seed), gains.mean(axis=1)
    for name in dict.fromkeys(map(str, of)):
        places = [place for place, each in enumerate(of) if str(each) == name and allowed[place]]
        if not places:
            yield [name, "none is admissible", *("" for _ in heading)]
            continue
        best = max(places, key=lambda place: float(means[place, RECALL]))
        recall, ndcg = (float(value) for value in means[best])
        figures = [_name(sets[0], best), f"{recall:+.4f}", f"{ndcg:+.4f}", f"{corrected_p(by_chance, recall):.4f}"]
        yield [name, *figures, *by_set([*sets, *prompts], best)]


def _near(sets: Sequence[GraphScores], setting: int | None, near: Sequence[Sequence[GraphScores]], seed: int) -> Rows:
    heading = ("recall@10, multi-hop", "nDCG@10, multi-hop", "against equal names alone, recall@10")
    yield ["cosine at least", *heading, *(f"{one.name}, all" for one in sets)]
    if setting is None:
        return
    plain = pooled_gains(sets)[setting]
    tried = [("equal names", sets, setting), *((str(at), one, 0) for at, one in zip(THRESHOLDS, near, strict=True))]
    for name, scored, place in tried:
        merged = pooled_gains(scored)[place]
        change = compare(plain[:, RECALL].tolist(), merged[:, RECALL].tolist(), seed=seed)
        means = [f"{value:+.4f}" for value in merged.mean(axis=0)]
        yield [name, *means, interval(change), *by_set(scored, place)]


def _ablation(sets: Sequence[GraphScores], ablation: Mapping[str, Scores], *, seed: int) -> Rows:
    yield [
        "set",
        "stratum",
        "questions",
        "measure",
        *(f"{name}: {legs}" for name, legs in CONFIGURATIONS.items()),
        *(f"{first} - {second} (p)" for first, second in _PAIRS),
    ]
    for one in sets:
        strata = np.array(one.strata)
        for stratum in ("all", *sorted(set(one.strata))):
            chosen = np.ones(len(strata), dtype=bool) if stratum == "all" else strata == stratum
            for measure in scoring.MEASURES:
                scores = {name: select(ablation[one.name], name, measure, chosen) for name in CONFIGURATIONS}
                gains = [compare(scores[second], scores[first], seed=seed) for first, second in _PAIRS]
                means = [f"{np.mean(found):.3f}" for found in scores.values()]
                differences = [f"{gain.difference:+.3f} ({gain.p_value:.4f})" for gain in gains]
                yield [one.name, stratum, str(int(chosen.sum())), measure, *means, *differences]
