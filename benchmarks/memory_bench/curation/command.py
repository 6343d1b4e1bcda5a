"""The command `curation`: finds the restatements of examples/homelab, applies what was found, and undoes it."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from devcluster.errors import DevclusterError
from devcluster.progress import ConsoleReporter
from devcluster.settings import Settings as DevclusterSettings
from memory_bench.curation.fitting import NAMES, Array, Chosen, Fit, Material, fit, proposals, tally
from memory_bench.curation.judge import RightAnswers, judge_chosen
from memory_bench.curation.other_people import (
    OtherPeople,
    fit_all,
    judge_other_people,
    read_material,
    read_other_people,
    score_other_people,
)
from memory_bench.curation.recalls import DEPTH, Answer, newer_first, recall_with_and_without
from memory_bench.curation.truth import read_truth
from memory_bench.embedder.llama_server_build import llama_server_program
from memory_bench.harness.dataset import Dataset, Query, load_dataset
from memory_bench.harness.scoring import Scorer
from memory_bench.harness.vectors import EmbeddedSet, embed_dataset
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.report import REPOSITORY, KeepOption, OutputOption, console, results_directory, write_json
from memory_bench.servers import DEFAULT_MODEL_FILE, ServerDidNotStartError, llama_server, memory_embedder
from memory_recall import ChatClient, MemoryIndexError
from memory_recall.cli.output import load_settings
from memory_recall.cli.recall import ModelKeyOption, ModelNameOption
from memory_recall.curation.decisions import THRESHOLD, Action, Judgement, judge
from memory_recall.curation.judging import Judging
from memory_recall.curation.model_answers import JudgingModel

_SET = REPOSITORY / "examples" / "homelab"
_OTHER_HALVINGS = 8
_CONTEXT = 8_192  # tokens; the longest pair of the sets and the examples take 2,000


def curation(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    output: OutputOption = None,
    keep: KeepOption = False,
    judge_url: Annotated[
        str | None, typer.Option("--judge", metavar="URL", help="Also ask the language model at this address.")
    ] = None,
    judge_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", exists=True, help="Also ask the model of this GGUF file, served by llama-server."),
    ] = None,
    judge_model: ModelNameOption = "default",
    judge_key_file: ModelKeyOption = None,
) -> None:
    """Judge `memory curate` on examples/homelab and examples/restatements; the last line of output is JSON.

    Weights and threshold are fitted on one half of the chains of restatements and judged on the other half, both ways;
    `found` and `wrong` add up what was judged. Eight other halvings show how much of this is chance. Recalls are
    compared with the proposals of both halves applied. `other_people` are those of examples/restatements, who write in
    four voices. Each voice is judged by what homelab and the other voices teach, with the shipped threshold; `without`
    has the same figures of both sets with each of the features left out. `weights` are those of all sets together, as
    they are shipped.

    With --judge, `by_model` has the same figures of both sets, if a language model is asked about every pair with a
    score of at least 0.1. The scores are those of before, of weights that were not fitted to the pair.
    `by_right_answers` has those of answers that are right by the sets' own restatements.

    Examples:
        python -m memory_bench curation
        python -m memory_bench curation --judge http://llm:8080 --judge-model qwen2.5
        python -m memory_bench curation --judge-file qwen2.5-coder-1.5b-instruct.gguf
    """
    if judge_url is not None and judge_file is not None:
        raise typer.BadParameter("Say --judge or --judge-file, but not both.")
    database = BenchmarkDatabase()
    try:
        with _language_model(database, judge_url, judge_file, judge_model, judge_key_file) as model:
            figures = _measured(database, model)
    except (DevclusterError, MemoryIndexError, ServerDidNotStartError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    finally:
        database.close()
    write_json(results_directory("curation", output, keep=keep) / "summary.json", figures)
    print(json.dumps(figures))


def _measured(database: BenchmarkDatabase, model: JudgingModel | None) -> dict[str, Any]:
    dataset = load_dataset(_SET)
    with (
        tempfile.TemporaryDirectory(prefix="memory-bench-curation-") as scratch,
        memory_embedder(DEFAULT_MODEL_FILE, Path(scratch, "embedder.log")) as server,
    ):
        embedded = database.wait(embed_dataset(dataset, server.url))
        others = read_other_people(server.url)
    database.fill(dataset.memories, embedded)
    truth = read_truth(_SET / "restatements.jsonl", _SET / "near-pairs.jsonl")
    material = database.wait(read_material(database.pool("plain"), dataset.memories, truth))
    figures = _figures(dataset, embedded, database, material) | _of_other_people(others, material)
    if model is not None:
        figures |= _by_model(model, dataset, embedded, database, material, others)
    return figures


@contextmanager
def _language_model(
    database: BenchmarkDatabase, url: str | None, file: Path | None, name: str, key_file: Path | None
) -> Iterator[ChatClient | None]:
    """Yield the client of the model at an address or of a GGUF file, or None if the command was given neither."""
    with ExitStack() as stack:
        if file is not None:
            url = stack.enter_context(_served(file))
        if url is None:
            yield None
            return
        model = ChatClient(url, name, key_file, query_egress=load_settings().query_egress)
        stack.callback(lambda: database.wait(model.close()))
        yield model


@contextmanager
def _served(file: Path) -> Iterator[str]:
    """Yield the address of llama-server with this model; it is built first if it is missing (ten minutes, once)."""
    program = llama_server_program(DevclusterSettings().cache_dir, ConsoleReporter())
    options = ["--parallel", "1", "--ctx-size", str(_CONTEXT), "--flash-attn", "on"]
    with (
        tempfile.TemporaryDirectory(prefix="memory-bench-judge-") as scratch,
        llama_server(program, file, Path(scratch, "llama-server.log"), options) as server,
    ):
        yield server.url


def _figures(
    dataset: Dataset, embedded: EmbeddedSet, database: BenchmarkDatabase, material: Material
) -> dict[str, Any]:
    halves, proposed = _judge_halves(material)
    rankings = recall_with_and_without(database, dataset.queries, embedded, proposed)
    right, counted = newer_first(dataset.queries, rankings.curated, material.truth)
    right_before, counted_before = newer_first(dataset.queries, rankings.before, material.truth)
    found, wrong = tally(material, proposed)
    others = [_tallied(material, _judge_halves(material, seed=seed)[1]) for seed in range(_OTHER_HALVINGS)]
    return {
        "found": found,
        "wrong": wrong,
        "newer_first": round(right / counted, 3),
        "newer_first_questions": counted,
        "undone": rankings.undone,
        "restatements": len(material.truth.kinds),
        "judged_restatements_beyond_them": len(proposed) - found - wrong,
        "halves": halves,
        "other_halvings": others,
        "newer_first_without_curation": round(right_before / counted_before, 3),
        "kind_right": _kinds_right(material, proposed),
        f"recall@{DEPTH}": {
            "without": _recall(dataset.queries, rankings.before),
            "with": _recall(dataset.queries, rankings.curated),
        },
    }


def _of_other_people(others: OtherPeople, homelab: Material) -> dict[str, Any]:
    """Return what is found of other people's restatements, the weights of all sets, and what those find of each."""
    bias, weights = fit_all([homelab, others.material])
    proposed = judge_other_people(others, homelab)
    voices = {str(voice): others.of(voice, proposed) for voice in np.unique(others.voices)}
    return {
        "other_people": {
            "restatements": len(others.material.truth.kinds),
            **_tallied(others.material, proposed),
            "voices": {voice: _tallied(others.material, own) for voice, own in voices.items()},
        },
        "without": {name: _without(name, others, homelab) for name in NAMES},
        "weights": {"bias": round(bias, 2)} | dict(zip(NAMES, weights.round(2).tolist(), strict=True)),
        "shipped_on_what_it_was_fitted_to": {
            "homelab": _tallied(homelab, _shipped(homelab)),
            "other_people": _tallied(others.material, _shipped(others.material)),
        },
    }


def _by_model(  # noqa: PLR0917  (what the command has read)
    model: JudgingModel,
    dataset: Dataset,
    embedded: EmbeddedSet,
    database: BenchmarkDatabase,
    homelab: Material,
    others: OtherPeople,
) -> dict[str, Any]:
    """Return the figures of both sets with the model's answers, and with right ones in place of the model's."""
    judges: dict[str, tuple[JudgingModel, JudgingModel]] = {
        "by_model": (model, model),
        "by_right_answers": (RightAnswers(homelab), RightAnswers(others.material)),
    }
    return {
        name: {
            "homelab": _homelab_by_model(of_homelab, dataset, embedded, database, homelab),
            "other_people": _other_people_by_model(of_others, others, database, homelab),
        }
        for name, (of_homelab, of_others) in judges.items()
    }


def _homelab_by_model(
    model: JudgingModel, dataset: Dataset, embedded: EmbeddedSet, database: BenchmarkDatabase, material: Material
) -> dict[str, Any]:
    judgings = [
        database.wait(judge_chosen(model, material, scores, judged, fitted.threshold))
        for judged, fitted, scores in _fitted_halves(material)
    ]
    proposed = [one for judging in judgings for one in judging.judgements if one.action is not Action.ADD]
    rankings = recall_with_and_without(database, dataset.queries, embedded, proposed)
    right, counted = newer_first(dataset.queries, rankings.curated, material.truth)
    return {
        **_tallied(material, proposed),
        "newer_first": round(right / counted, 3),
        "kind_right": _kinds_right(material, proposed),
        **_answers(judgings),
    }


def _other_people_by_model(
    model: JudgingModel, others: OtherPeople, database: BenchmarkDatabase, homelab: Material
) -> dict[str, Any]:
    scores = score_other_people(others, homelab)
    everybody = np.ones(len(scores), dtype=np.bool_)
    judging = database.wait(judge_chosen(model, others.material, scores, everybody, THRESHOLD))
    proposed = [one for one in judging.judgements if one.action is not Action.ADD]
    return {
        **_tallied(others.material, proposed),
        "kind_right": _kinds_right(others.material, proposed),
        **_answers([judging]),
    }


def _answers(judgings: Sequence[Judging]) -> dict[str, int]:
    names = ("judged", "unusable", "not_judged", "changed")
    return {name: sum(getattr(one, name) for one in judgings) for name in names}


def _without(name: str, others: OtherPeople, homelab: Material) -> dict[str, dict[str, int]]:
    """Return what is found of both sets if a feature is left out when weights are fitted and when they are used."""
    taught = homelab.without(name)
    judged = replace(others, material=others.material.without(name))
    return {
        "homelab": _tallied(taught, _judge_halves(taught)[1]),
        "other_people": _tallied(judged.material, judge_other_people(judged, taught)),
    }


def _shipped(material: Material) -> list[Judgement]:
    return [one for one in judge(material.pairs, material.frequencies) if one.action is not Action.ADD]


def _tallied(material: Material, proposed: Sequence[Judgement]) -> dict[str, int]:
    return dict(zip(("found", "wrong"), tally(material, proposed), strict=True))


def _judge_halves(material: Material, *, seed: int | None = None) -> tuple[list[dict[str, Any]], list[Judgement]]:
    """Return the figures of both halves, each judged by the fit to the other, and the proposals that were judged."""
    figures, proposed = [], []
    for judged, fitted, scores in _fitted_halves(material, seed=seed):
        chosen_on = proposals(material, scores, ~judged, fitted.threshold)
        judged_on = proposals(material, scores, judged, fitted.threshold)
        proposed += judged_on
        figures.append(
            {
                "threshold": round(fitted.threshold, 3),
                "chosen_on": _tallied(material, chosen_on),
                "judged_on": _tallied(material, judged_on),
            }
        )
    return figures, proposed


def _fitted_halves(material: Material, *, seed: int | None = None) -> Iterator[tuple[Chosen, Fit, Array]]:
    """Yield for each half its pairs, the fit to the other half, and the scores of all pairs by that fit."""
    half = np.array(material.truth.halves(material.ids, seed=seed))
    for judged in (0, 1):
        fitted = fit(material, half != judged)
        yield half == judged, fitted, fitted.scores(material.features)


def _kinds_right(material: Material, proposed: Sequence[Judgement]) -> str:
    """Return how many of the found restatements got the action of their kind: SUPERSEDE for those that replace."""
    kinds = material.truth.kinds
    known = [(one, kinds.get(one.pair.ids)) for one in proposed]
    right = sum(kind is not None and (one.action is Action.SUPERSEDE) == (kind == "replaces") for one, kind in known)
    return f"{right} of {sum(kind is not None for _, kind in known)}"


def _recall(queries: Sequence[Query], answers: Sequence[Answer]) -> float:
    scores = Scorer(queries).score([[memory for memory, _, _ in answer] for answer in answers])
    return round(sum(one[f"recall@{DEPTH}"] for one in scores) / len(scores), 4)
