"""The command `second-stage`: measures MaxSim and MMR, and says what the rules of ADR 27 make of them."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.curation.truth import chains_of, read_truth
from memory_bench.harness.dataset import DatasetError
from memory_bench.report import KeepOption, OutputOption, console, results_directory
from memory_bench.second_stage.costs import measure_costs
from memory_bench.second_stage.diversity import DiversityScores, score_facts, score_mmr
from memory_bench.second_stage.reranking import Compared, MaxSimScores, compare_tokens, score_maxsim
from memory_bench.second_stage.settings import maxsim_settings, mmr_settings
from memory_bench.second_stage.tables import MaxSimStudy, MmrStudy, write
from memory_bench.second_stage.token_states import TokenStateEncoder
from memory_bench.second_stage.verdict import judge_maxsim, judge_mmr
from memory_bench.servers import DEFAULT_MODEL, DEFAULT_MODEL_FILE, ServerDidNotStartError, memory_embedder
from memory_bench.studies.measured_sets import OWN_DIRECTORY, MeasuredSet, load_sets, measure_set
from memory_embedder.engine.hardware import available_threads
from memory_embedder.errors import EmbedderError, ErrorKind
from memory_recall import MemoryIndexError

_LEAST_POOLED = 0.999
_LEAST_SETS = 2


@dataclass(frozen=True, slots=True)
class _Scores:
    """The scores of one set in all settings of both studies, for its questions alone and inside prompts."""

    compared: Compared
    maxsim: tuple[MaxSimScores, MaxSimScores]
    mmr: tuple[DiversityScores, DiversityScores]


def second_stage(
    datasets: Annotated[Path, typer.Argument(help="A directory of labelled sets (docs/recall.md).")],
    output: OutputOption = None,
    keep: KeepOption = False,
    seed: Annotated[int, typer.Option(help="The seed of the resampling.")] = 0,
) -> None:
    """Measure MaxSim and MMR over the first memories of a recall, on every labelled set and examples/homelab.

    It takes about twenty minutes on two processors if the cache has the vectors. The last line of output is JSON: the
    changes out of fold, what MaxSim costs, how many repeats MMR saves, and both verdicts.

    Example: python -m memory_bench second-stage ../shared/datasets
    """
    try:
        loaded = load_sets(datasets)
        if len(loaded) < _LEAST_SETS:
            console.print(f"There is no set in {datasets}; the rules need others than examples/homelab.", markup=False)
            raise typer.Exit(1)
        with (
            tempfile.TemporaryDirectory(prefix="memory-bench-second-stage-") as scratch,
            memory_embedder(DEFAULT_MODEL_FILE, Path(scratch, "embedder.log")) as server,
        ):
            measured = [measure_set(one, server.url, seed=seed) for one in loaded]
        maxsim, mmr = _studies(measured, seed)
    except (DatasetError, EmbedderError, MemoryIndexError, ServerDidNotStartError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    dimensions = measured[0].plain.embedded.memories.shape[1]
    directory = results_directory("second_stage", output, keep=keep)
    write(maxsim, mmr, directory, model=DEFAULT_MODEL, dimensions=dimensions, seed=seed)
    print(json.dumps({"maxsim": maxsim.outcome.figures(), "mmr": mmr.outcome.figures()}))


def _studies(measured: Sequence[MeasuredSet], seed: int) -> tuple[MaxSimStudy, MmrStudy]:
    own = measured[-1].plain  # `load_sets` reads our own set last
    with TokenStateEncoder(DEFAULT_MODEL_FILE, DEFAULT_MODEL, threads=available_threads()) as encoder:
        scores = [_score(one, encoder) for one in measured]
        costs = measure_costs(own, encoder, seed=seed)
    worst = min(one.compared.worst_pooled for one in scores)
    if worst < _LEAST_POOLED:
        raise EmbedderError(
            ErrorKind.ENGINE, f"The mean of a memory's states has a cosine of {worst:.4f} with its vector."
        )
    sets, prompts = [one.maxsim[0] for one in scores], [one.maxsim[1] for one in scores]
    tokens = {one.name: found.compared.tokens for one, found in zip(sets, scores, strict=True)}
    maxsim = MaxSimStudy(sets, prompts, tokens, worst, judge_maxsim(sets, prompts, costs, seed=seed))
    truth = read_truth(OWN_DIRECTORY / "restatements.jsonl", OWN_DIRECTORY / "near-pairs.jsonl")
    facts = score_facts(own, mmr_settings(), chains_of([*truth.kinds, *truth.judged]))
    diverse, in_prompts = [one.mmr[0] for one in scores], [one.mmr[1] for one in scores]
    return maxsim, MmrStudy(diverse, in_prompts, facts, judge_mmr(diverse, in_prompts, facts, seed=seed))


def _score(one: MeasuredSet, encoder: TokenStateEncoder) -> _Scores:
    console.print(f"[bold]{one.plain.dataset.name}[/]: states of tokens")
    both = (one.plain, one.prompts)
    compared = compare_tokens(both, encoder)
    plain, prompts = (
        score_maxsim(labelled, similar, maxsim_settings())
        for labelled, similar in zip(both, compared.similar, strict=True)
    )
    return _Scores(compared, (plain, prompts), (score_mmr(both[0], mmr_settings()), score_mmr(both[1], mmr_settings())))
