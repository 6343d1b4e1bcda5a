"""What the repository keeps of a benchmark: one summary, and the pictures that pages show.

A run writes all of its results to `build/benchmarks`, which git ignores. The command `keep` writes the summary of the
last run to `benchmarks/results`: the figures that pages quote, the commit, the day and the machine, and a digest of
each file or folder that the benchmark exercises. Where such a digest is not that of the present code, the
documentation site says beside the figures that they were measured before. No page may quote another figure; a test
compares them.
"""

import itertools
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from devcluster.building.digests import digest_of_files
from memory_bench.report import REPOSITORY, commit, console, machine, now, results_directory

RESULTS = REPOSITORY / "benchmarks" / "results"
SUMMARY = "summary.json"
_BENCH = "benchmarks/memory_bench"
_SEARCH = "recall/memory_recall/search"
_EMBEDDER = "embedder-service/memory_embedder"
_EXHAUSTING = "tests/support/exhausting_bodies.py"
_SWAPS = (f"{_BENCH}/swap", "tests/support/invented.py", "recall/memory_recall/swap")

Figures = Mapping[str, object]
Written = Mapping[str, Any]
"""What a benchmark has written to a JSON file."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of one benchmark.

    `figures` picks the figures from what the run wrote to the file `written`. `exercises` are the files and folders of
    the repository on which the figures depend.
    """

    written: str
    figures: Callable[[Written], Figures]
    exercises: tuple[str, ...]
    pictures: tuple[str, ...] = ()


def _recall(written: Written) -> Figures:
    return {"model": written["model"], **written["figures"], "what each leg adds": written["legs"]}


def _latency(written: Written) -> Figures:
    times = {
        f"{size['rows']:,} rows, {condition}, p50 and p95 ms": {
            arm["arm"]: [arm["p50"], arm["p95"]] for arm in size["arms"] if arm["condition"] == condition
        }
        for size in written["sizes"]
        for condition in ("warm", "cold")
    }
    sizes = {f"{size['rows']:,} rows": _without_arms(size) for size in written["sizes"]}
    return {**written["figures"], **times, **sizes}


def _without_arms(size: Mapping[str, object]) -> Figures:
    return {name: value for name, value in size.items() if name not in {"arms", "rows"}}


def _swap(written: Written) -> Figures:
    counted = ("rows", "recalls_per_second", "writes_per_second", "recalls", "degraded", "longest_recall_s")
    said = {f"the {name} model": swap["said"] or swap["result"] for name, swap in written["swaps"].items()}
    stages = [one for one in written["events"] if " is " in one["event"]]
    seconds = {
        f"{one['event']}, s": round(following["at"] - one["at"], 1) for one, following in itertools.pairwise(stages)
    }
    return {**written["headline"], **{name: written[name] for name in counted}, **said, **seconds}


def _backfill(written: Written) -> Figures:
    parts = ("embedder", "null")
    return {
        **written["headline"],
        **{f"{part}, rows per second": written[part]["rows_per_second"] for part in parts},
        **{f"{part}, rows": written[part]["rows"] for part in parts},
        "updates": written["updates"],
    }


def _operator(written: Written) -> Figures:
    return {**written["headline"], "sizes": written["parts"]["scale"]["details"]["sizes"]}


def _embedder(written: Written) -> Figures:
    return {**written["summary"], **written["details"], **written["table"]}


def _fleet(written: Written) -> Figures:
    kept = ("asked", "answered", "p50_ms", "p95_ms", "waiting", "binds", "processor_ms_per_recall")
    rates = {
        f"{one['rate']:g} recalls a second": {
            **{name: one[name] for name in kept},
            **{name: one["usage"][name] for name in ("processors", "disk")},
        }
        for one in written["rates"]
    }
    changed = written["changed"]
    return {**written["figures"], **rates, **({} if changed is None else {"while they changed": changed["usage"]})}


def _flood(written: Written) -> Figures:
    return {**written["outcome"], **written["details"]}


def _curation(written: Written) -> Figures:
    return {name: figure for name, figure in written.items() if name != "undone"}


def _relevance(written: Written) -> Figures:
    details = written["details"]
    others = {name: written[name] for name in ("second_model", "multilingual") if name in written}
    return {
        **{name: value for name, value in written.items() if name not in {"details", *others}},
        **{name: details[name] for name in ("weights", "weights of words alone", "usual cosines")},
        "kept and empty by family": details["by family"],
        "the same as served": details["as served"],
        "the same by words alone": details["words alone"],
        **{name: {key: value for key, value in one.items() if key != "details"} for name, one in others.items()},
        **{f"{name}, kept and empty by family": one["details"]["by family"] for name, one in others.items()},
    }


KEPT: Mapping[str, Kept] = {
    "recall": Kept("summary.json", _recall, (f"{_BENCH}/recall", f"{_BENCH}/harness", _SEARCH)),
    "relevance": Kept(
        "relevance.json",
        _relevance,
        (f"{_BENCH}/recall/relevance", f"{_SEARCH}/relevance.py", "examples/everyday", "examples/homelab"),
        ("reliability.png",),
    ),
    "latency": Kept("latency.json", _latency, (f"{_BENCH}/latency", _SEARCH)),
    "backfill": Kept("results.json", _backfill, (f"{_BENCH}/backfill", "recall/memory_recall/indexing")),
    "swap": Kept("results.json", _swap, _SWAPS, ("swap.png",)),
    "swap-real": Kept("results.json", _swap, _SWAPS),
    "operator": Kept(
        "summary.json",
        _operator,
        (f"{_BENCH}/operator", "tests/support/cluster", "operator/memory_operator"),
        ("scale.png",),
    ),
    "fleet": Kept(
        "fleet.json", _fleet, (f"{_BENCH}/fleet", "operator/memory_operator", _SEARCH, _EMBEDDER), ("fleet.png",)
    ),
    "embedder": Kept(
        "all-MiniLM-L6-v2.json",
        _embedder,
        (
            f"{_BENCH}/embedder",
            "tests/support/model_files",
            "embedder-service/memory_embedder",
            "embedder-service/kernels",
            "requirements/llama.txt",
        ),
    ),
    "embedder-flood": Kept(
        "flood.json", _flood, (f"{_BENCH}/embedder_flood", _EXHAUSTING, _EMBEDDER, "requirements/llama.txt")
    ),
    "curation": Kept("summary.json", _curation, (f"{_BENCH}/curation", "recall/memory_recall/contrib/curation")),
}


def keep(benchmark: Annotated[str, typer.Argument(help=f"One of {', '.join(KEPT)}.")]) -> None:
    """Keep the summary and the pictures of a benchmark's last run, which lie in build/benchmarks.

    Example: python -m memory_bench keep latency
    """
    if benchmark not in KEPT:
        raise typer.BadParameter(f"Nothing is kept of {benchmark}; one of {', '.join(KEPT)} is expected.")
    kept, directory = KEPT[benchmark], results_directory(benchmark, None)
    written = directory / kept.written
    if not written.is_file():
        console.print(f"There is no {written}: run the benchmark first.", markup=False)
        raise typer.Exit(1)
    target = RESULTS / benchmark
    target.mkdir(parents=True, exist_ok=True)
    provenance = {"made_at": now(), "commit": commit(), "machine": machine()}
    found = summary(kept, json.loads(written.read_text(encoding="utf-8")), provenance)
    (target / SUMMARY).write_text(in_few_lines(found), encoding="utf-8")
    for picture in kept.pictures:
        shutil.copyfile(directory / picture, target / picture)
    console.print(f"{target / SUMMARY} is written.", markup=False)


def summary(
    kept: Kept,
    written: Written,
    provenance: Mapping[str, object],
    sources: Path = REPOSITORY,
) -> dict[str, object]:
    """Return the summary to keep: provenance, digests of the code that was measured, and the figures of the run.

    `written` is the JSON that the run wrote; the code is that of the repository in `sources`.
    """
    return {
        **provenance,
        "exercises": {path: digest_of_files(sources, [path]) for path in kept.exercises},
        "figures": kept.figures(written),
    }


def in_few_lines(value: Mapping[str, object]) -> str:
    """Return JSON with a line for each entry, and for each entry of `exercises` and `figures`."""
    return "{\n" + ",\n".join(f" {json.dumps(name)}: {_entry(each)}" for name, each in value.items()) + "\n}\n"


def _entry(value: object) -> str:
    if not isinstance(value, Mapping) or not value:
        return json.dumps(value)
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in value.items()) + "\n }"
