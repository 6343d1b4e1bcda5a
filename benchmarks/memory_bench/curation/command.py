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
from memory_bench.curation.by_model import Sets, judge_by_language_model, judge_by_recorded_answers
from memory_bench.curation.fitting import NAMES, Material, fitted_halves, kinds_right, proposals, tallied, tally
from memory_bench.curation.other_people import (
    OtherPeople,
    fit_all,
    judge_other_people,
    read_material,
    read_other_people,
)
from memory_bench.curation.recalls import DEPTH, Answer, newer_first, recall_with_and_without
from memory_bench.curation.token_weights import KeptAnswers
from memory_bench.curation.truth import read_truth
from memory_bench.embedder.llama_server_build import llama_server_program
from memory_bench.harness.dataset import Dataset, Query, load_dataset
from memory_bench.harness.scoring import Scorer
from memory_bench.harness.vectors import EmbeddedSet, embed_dataset
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.report import REPOSITORY, OutputOption, console, results_directory, write_json
from memory_bench.servers import DEFAULT_MODEL_FILE, ServerDidNotStartError, llama_server, memory_embedder
from memory_recall import ChatClient, MemoryIndexError
from memory_recall.cli.output import load_settings
from memory_recall.cli.recall import ModelKeyOption, ModelNameOption
from memory_recall.curation.decisions import Action, Judgement, judge

_SET = REPOSITORY / "examples" / "homelab"
_BLIND = _SET / "blind-judgements.jsonl"
_OTHER_HALVINGS = 8
_CONTEXT = 8_192  # tokens; the longest pair of the sets and the examples take 2,000


def curation(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    output: OutputOption = None,
    judge_url: Annotated[
        str | None, typer.Option("--judge", metavar="URL", help="Also ask the language model at this address.")
    ] = None,
    judge_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", exists=True, help="Also ask the model of this GGUF file, served by llama-server."),
    ] = None,
    judge_model: ModelNameOption = "default",
    judge_key_file: ModelKeyOption = None,
    answers: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the model's answers here, and do not ask for those that are there."),
    ] = None,
) -> None:
    """Judge `memory curate` on examples/homelab and examples/restatements; the last line of output is JSON.

    Weights and threshold are fitted on one half of the chains of restatements and judged on the other half, both ways;
    `found` and `wrong` add up what was judged. Eight other halvings show how much of this is chance. Recalls are
    compared with the proposals of both halves applied. `other_people` are those of examples/restatements, who write in
    five voices. Each voice is judged by what homelab and the other voices teach, with the shipped threshold; `without`
    has the same figures of both sets with each of the features left out. `weights` are those of all sets together, as
    they are shipped. `by_blind_judges` has what is found of homelab with recorded answers in a judging model's place:
    those of three runs of a large language model, which judged the pairs outside of this program, by the set's
    definitions.

    With --judge, a language model is asked about every pair with a score of at least 0.1. `by_yes_or_no` has the same
    figures of both sets if its answers are read as those of any model, `by_tokens` if what its tokens weigh is fitted
    to other voices, and `by_right_answers` those of answers that are right by the sets' own restatements. The rules'
    scores are of weights that were not fitted to the pair. `found_less_wrong_by_person` compares the first two with the
    rules and with each other. token-weights.json has the tokens' weights by all voices.

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
            kept = None if model is None else KeptAnswers(model, judge_model, answers)
            figures, weights = _measured(database, kept, judge_model)
    except (DevclusterError, MemoryIndexError, ServerDidNotStartError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    finally:
        database.close()
    directory = results_directory("curation", output)
    write_json(directory / "summary.json", figures)
    if weights:
        write_json(directory / "token-weights.json", weights)
    print(json.dumps(figures))


def _measured(
    database: BenchmarkDatabase, model: KeptAnswers | None, name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures, and what the model's tokens weigh if there is a model."""
    dataset = load_dataset(_SET)
    with (
        tempfile.TemporaryDirectory(prefix="memory-bench-curation-") as scratch,
        memory_embedder(DEFAULT_MODEL_FILE, Path(scratch, "embedder.log")) as server,
    ):
        embedded = database.wait(embed_dataset(dataset, server.url))
        others = read_other_people(server.url)
    database.fill(dataset.memories, embedded)
    before = read_truth(_SET / "restatements.jsonl", _SET / "near-pairs.jsonl")
    truth = read_truth(_SET / "restatements.jsonl", _SET / "near-pairs.jsonl", _BLIND)
    material = database.wait(read_material(database.pool("plain"), dataset.memories, truth))
    sets = Sets(dataset, embedded, database, material, others)
    figures = _figures(dataset, embedded, database, material) | _of_other_people(others, material)
    figures["by_blind_judges"] = judge_by_recorded_answers(sets, _BLIND, before)
    if model is None:
        return figures, {}
    by_model, weights = judge_by_language_model(model, name, sets)
    return figures | by_model, weights


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
    others = [tallied(material, _judge_halves(material, seed=seed)[1]) for seed in range(_OTHER_HALVINGS)]
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
        "kind_right": kinds_right(material, proposed),
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
            **tallied(others.material, proposed),
            "voices": {voice: tallied(others.material, own) for voice, own in voices.items()},
        },
        "without": {name: _without(name, others, homelab) for name in NAMES},
        "weights": {"bias": round(bias, 2)} | dict(zip(NAMES, weights.round(2).tolist(), strict=True)),
        "shipped_on_what_it_was_fitted_to": {
            "homelab": tallied(homelab, _shipped(homelab)),
            "other_people": tallied(others.material, _shipped(others.material)),
        },
    }


def _without(name: str, others: OtherPeople, homelab: Material) -> dict[str, dict[str, int]]:
    """Return what is found of both sets if a feature is left out when weights are fitted and when they are used."""
    taught = homelab.without(name)
    judged = replace(others, material=others.material.without(name))
    return {
        "homelab": tallied(taught, _judge_halves(taught)[1]),
        "other_people": tallied(judged.material, judge_other_people(judged, taught)),
    }


def _shipped(material: Material) -> list[Judgement]:
    return [one for one in judge(material.pairs, material.frequencies) if one.action is not Action.ADD]


def _judge_halves(material: Material, *, seed: int | None = None) -> tuple[list[dict[str, Any]], list[Judgement]]:
    """Return the figures of both halves, each judged by the fit to the other, and the proposals that were judged."""
    figures, proposed = [], []
    for judged, fitted, scores in fitted_halves(material, seed=seed):
        chosen_on = proposals(material, scores, ~judged, fitted.threshold)
        judged_on = proposals(material, scores, judged, fitted.threshold)
        proposed += judged_on
        figures.append(
            {
                "threshold": round(fitted.threshold, 3),
                "chosen_on": tallied(material, chosen_on),
                "judged_on": tallied(material, judged_on),
            }
        )
    return figures, proposed


def _recall(queries: Sequence[Query], answers: Sequence[Answer]) -> float:
    scores = Scorer(queries).score([[memory for memory, _, _ in answer] for answer in answers])
    return round(sum(one[f"recall@{DEPTH}"] for one in scores) / len(scores), 4)
