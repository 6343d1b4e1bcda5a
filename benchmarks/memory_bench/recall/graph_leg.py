"""Judges the concept graph as recall serves it: hybrid recall with the graph leg beside hybrid recall without it.

Both rankings come from the recall statement. The rule is that of ADR 26, without its choice among settings: there is
one setting, the served one, so that p needs no correction. Each question is also asked inside a prompt, where the graph
leg may take nothing away.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from memory_bench.harness.set_report import compare_runs
from memory_bench.recall.production import DENSE, HYBRID, LEXICAL, Runs, strata
from memory_recall.evaluation.significance import Comparison, compare

GRAPH = f"{HYBRID}-graph"
MULTIHOP = "multihop"
ARMS = {"lexical, dense, graph": GRAPH, "lexical, dense": HYBRID, "dense": DENSE, "lexical": LEXICAL}
_PAIRS = {"graph": (GRAPH, HYBRID), "lexical": (HYBRID, DENSE), "dense": (HYBRID, LEXICAL)}
"""The runs with and without a leg, by the leg."""
MEASURES = ("recall@10", "ndcg@10")
OWN_SET = "homelab"
LEAST_QUESTIONS = 600
ADOPTED_GAIN, OPT_IN_GAIN = 0.02, 0.01
LARGEST_P, _WORSE = 0.01, 0.05
LARGEST_LOSS: Mapping[str, float] = {"recall@10": 0.002, "ndcg@10": 0.003}
"""By how much the mean of a set may fall."""
_ROUNDING = 1e-9

Verdict = Literal["adopted", "opt-in", "rejected"]
Gains = Mapping[str, Comparison]
"""How the scores change by measure."""


@dataclass(frozen=True, slots=True)
class GraphGains:
    """By how much the graph leg changes the scores.

    `multihop` is over the multi-hop questions of all sets together, of which there are `questions`. `sets` is over all
    questions of each set, `prompts` over the same questions inside prompts, and `own` over each stratum of our own set.
    """

    questions: int
    multihop: Gains
    sets: Mapping[str, Gains]
    prompts: Mapping[str, Gains]
    own: Mapping[str, Gains]

    @property
    def verdict(self) -> Verdict:
        """What the rule of ADR 26 says."""
        whole = [*self.sets.values(), *self.prompts.values()]
        recall, ndcg = self.multihop["recall@10"], self.multihop["ndcg@10"]
        kept = ndcg.difference >= -_ROUNDING and recall.p_value < LARGEST_P
        bounded = all(map(_is_bounded, whole)) and not any(map(_is_worse, self.own.values()))
        if kept and bounded and recall.difference >= ADOPTED_GAIN and self.questions >= LEAST_QUESTIONS:
            return "adopted"
        harmless = not any(map(_is_worse, whole))
        return "opt-in" if kept and harmless and recall.difference >= OPT_IN_GAIN else "rejected"

    def figures(self) -> dict[str, object]:
        """Return the main figures, as the last line of output has them."""
        return {
            "multihop_questions": self.questions,
            "recall@10_gain": round(self.multihop["recall@10"].difference, 4),
            "p": round(self.multihop["recall@10"].p_value, 4),
            "ndcg@10_gain": round(self.multihop["ndcg@10"].difference, 4),
            "worst_set_recall@10": round(min(one["recall@10"].difference for one in self.sets.values()), 4),
            "worst_set_ndcg@10": round(min(one["ndcg@10"].difference for one in self.sets.values()), 4),
            "verdict": self.verdict,
        }


def judge(sets: Mapping[str, Runs], prompts: Mapping[str, Runs], *, seed: int) -> GraphGains | None:
    """Compare the runs with the graph leg with those without it; None if no set has a multi-hop question.

    Args:
        sets: The runs of each set, by the set's name.
        prompts: Those of the same questions inside prompts.
        seed: The seed of the resampling.
    """
    pairs = [pair for runs in sets.values() for pair in _multihop(runs)]
    if not pairs:
        return None
    own = sets.get(OWN_SET, {})
    return GraphGains(
        questions=len(pairs),
        multihop={
            measure: compare([plain[measure] for plain, _ in pairs], [graph[measure] for _, graph in pairs], seed=seed)
            for measure in MEASURES
        },
        sets={name: _gains(runs, seed=seed) for name, runs in sets.items()},
        prompts={name: _gains(runs, seed=seed) for name, runs in prompts.items()},
        own={stratum: _gains(own, seed=seed, stratum=stratum) for stratum in (strata(own) if own else ())},
    )


def ablation(sets: Mapping[str, Runs], *, seed: int) -> Iterator[Sequence[str]]:
    """Yield the rows of a table of all arms by set and stratum, and of the differences that each leg makes."""
    yield ["set", "stratum", "questions", "measure", *ARMS, *(f"what {leg} adds (p)" for leg in _PAIRS)]
    for name, runs in sets.items():
        for stratum in (None, *strata(runs)):
            count = str(len(runs[HYBRID].scores("recall@10", stratum)))
            for measure in MEASURES:
                means = [f"{runs[arm].means(stratum)[measure]:.3f}" for arm in ARMS.values()]
                gains = [
                    compare_runs(runs[less], runs[more], measure, seed=seed, stratum=stratum)
                    for more, less in _PAIRS.values()
                ]
                differences = [f"{one.difference:+.3f} ({one.p_value:.4f})" for one in gains]
                yield [name, stratum or "all", count, measure, *means, *differences]


def legs(sets: Mapping[str, Runs]) -> dict[str, dict[str, float]]:
    """Return recall@10 of all arms by set."""
    return {
        name: {arm: round(runs[retriever].means()["recall@10"], 4) for arm, retriever in ARMS.items()}
        for name, runs in sets.items()
    }


def _multihop(runs: Runs) -> Iterator[tuple[Mapping[str, float], Mapping[str, float]]]:
    for plain, graph in zip(runs[HYBRID].answers, runs[GRAPH].answers, strict=True):
        if plain.stratum == MULTIHOP:
            yield plain.scores, graph.scores


def _gains(runs: Runs, *, seed: int, stratum: str | None = None) -> Gains:
    return {
        measure: compare_runs(runs[HYBRID], runs[GRAPH], measure, seed=seed, stratum=stratum) for measure in MEASURES
    }


def _is_bounded(gains: Gains) -> bool:
    return all(gains[measure].difference >= -loss - _ROUNDING for measure, loss in LARGEST_LOSS.items())


def _is_worse(gains: Gains) -> bool:
    return any(one.difference < 0 and one.p_value < _WORSE for one in gains.values())
