"""Compares the models of a study, question by question, on every set."""

from collections.abc import Iterator, Mapping, Sequence

from memory_bench.harness.set_report import compare_runs
from memory_bench.recall.graph_leg import MEASURES
from memory_bench.recall.production import DENSE, HYBRID
from memory_bench.recall.tables import SetMeasurements

_RETRIEVERS = {"dense": DENSE, "hybrid": HYBRID}


def model_by_model(measured: Mapping[str, Sequence[SetMeasurements]], *, seed: int) -> Iterator[Sequence[str]]:
    """Yield the rows of a table that compares each further model with the first one in `measured`.

    `measured` maps a model's name to its measurements of the sets, in the same order for every model. A difference is
    positive where the further model is better; its interval and p value are those of paired tests over the questions.
    """
    first, *others = measured
    compared = [heading for name in others for heading in (name, "difference", "95 % interval", "p")]
    yield ["set", "measure", "retriever", first, *compared]
    for sets in zip(*measured.values(), strict=True):
        for measure in MEASURES:
            for label, retriever in _RETRIEVERS.items():
                base, *results = (one.results[retriever] for one in sets)
                cells = [f"{base.means()[measure]:.3f}"]
                for result in results:
                    gain = compare_runs(base, result, measure, seed=seed)
                    cells += [f"{result.means()[measure]:.3f}", f"{gain.difference:+.3f}"]
                    cells += [f"{gain.low:+.3f} to {gain.high:+.3f}", f"{gain.p_value:.4f}"]
                yield [sets[0].name, measure, label, *cells]
