"""The command `index-study`: compares smaller vector indexes with today's, and says what the rule of ADR 30 decides."""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from memory_bench.harness.dataset import Dataset, DatasetError
from memory_bench.index_study.designs import SMALLER, TODAY, Kind, designs, settings
from memory_bench.index_study.exact import ExactShares, exact_shares
from memory_bench.index_study.measure import measure_cold, measure_warm
from memory_bench.index_study.quality import SetQuality, measure_quality
from memory_bench.index_study.rankings import nearest
from memory_bench.index_study.store import fill
from memory_bench.index_study.tables import Study, write
from memory_bench.index_study.texts import EmbeddedTexts, embed_texts
from memory_bench.index_study.vectors import Vectors, made_rows, modelled, widened
from memory_bench.index_study.verdict import Measured, TableResult, chosen
from memory_bench.latency.store import SETTINGS
from memory_bench.postgres import MeasuredServer
from memory_bench.report import KeepOption, OutputOption, console, results_directory
from memory_bench.servers import CACHE, DEFAULT_MODEL, DEFAULT_MODEL_FILE, ServerDidNotStartError, memory_embedder
from memory_bench.studies.measured_sets import load_sets
from memory_recall import MemoryIndexError
from memory_recall.hnsw.search_effort import DENSE_DEPTH

_SIZES = [100_000, 1_000_000]
_MODELLED = (384, 1024)
_BYTES_A_ROW = 17_000  # table, TOAST and the indexes of all designs at 384 and at 1,024 dimensions


def index_study(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    datasets: Annotated[Path, typer.Argument(help="A directory of labelled sets (docs/recall.md).")],
    rows: Annotated[list[int] | None, typer.Option(help="Repeatable: a number of rows, a multiple of 5,000.")] = None,
    name: Annotated[
        list[str] | None, typer.Option("--set", help="Repeatable: the sets to embed; default: all. homelab is one.")
    ] = None,
    texts: Annotated[int, typer.Option(min=1, help="Texts that get a vector: memories, then their sentences.")] = 6_000,
    questions: Annotated[int, typer.Option(min=40, help="Timed questions for each table.")] = 220,
    cold_questions: Annotated[int, typer.Option(min=5, help="Questions with cold caches for each table.")] = 40,
    every_design: Annotated[
        bool, typer.Option("--every-design", help="Also build what an exact search has ruled out.")
    ] = False,
    output: OutputOption = None,
    keep: KeepOption = False,
    cache: Annotated[Path, typer.Option(help="Where the databases are kept between runs.")] = CACHE / "index",
) -> None:
    """Compare smaller vector indexes with HNSW over halves at several table sizes, by the rule of ADR 30.

    An index finds no more than an exact search by the same expression, so a kind whose exact search misses the rule's
    bound with the most candidates is rejected without an index. By default 100,000 and a million rows are measured,
    which takes up to 17 GB of disk and hours at the first run. The last line of output is JSON: the verdicts, what
    exact searches keep, and the best setting of each kind beside today's.

    Example: python -m memory_bench index-study ../shared/datasets --rows 100000
    """
    sizes = sorted(set(rows or _SIZES))
    _require_space(cache, sum(sizes) * _BYTES_A_ROW)
    try:
        loaded = [one for one in load_sets(datasets) if not name or one.name in name]
        embedded = _embedded(loaded, texts)
    except (DatasetError, MemoryIndexError, ServerDidNotStartError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    sets = [measure_quality(one, vectors) for one, vectors in embedded.sets]
    exact = list(_texts_alone(embedded, questions))
    tables = []
    server = MeasuredServer(SETTINGS, cache)
    try:
        for vectors in (one for size in sizes for one in _vectors(embedded, size, questions)):
            exact.append(exact_shares(vectors, vectors.name))
            kinds = SMALLER if every_design else exact[-1].possible
            tables.append(asyncio.run(_measure(server, vectors, kinds, sets, cold_questions)))
    finally:
        server.close()
    study = Study(DEFAULT_MODEL, len(embedded.texts), tables, exact, sets, os.getloadavg()[2])
    write(study, results_directory("index", output, keep=keep))
    print(json.dumps(study.figures()))


def _require_space(cache: Path, needed: int) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    kept = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
    if shutil.disk_usage(cache).free < needed - kept:
        console.print(f"{cache} needs {(needed - kept) / 2**30:.0f} GiB more. Free it, or choose smaller --rows.")
        raise typer.Exit(1)


def _embedded(loaded: Sequence[Dataset], texts: int) -> EmbeddedTexts:
    with (
        tempfile.TemporaryDirectory(prefix="memory-bench-index-") as scratch,
        memory_embedder(DEFAULT_MODEL_FILE, Path(scratch, "embedder.log")) as server,
    ):
        return asyncio.run(embed_texts(loaded, server.url, texts))


def _say(what: str) -> None:
    console.print(what, highlight=False)


def _vectors(embedded: EmbeddedTexts, rows: int, questions: int) -> Iterator[Vectors]:
    yield widened(embedded.texts, embedded.some_questions(questions), rows)
    for dimensions in _MODELLED:
        yield modelled(dimensions, rows, questions, _say)


async def _measure(
    server: MeasuredServer, vectors: Vectors, kinds: Sequence[Kind], sets: Sequence[SetQuality], cold_questions: int
) -> TableResult:
    rows, title = len(vectors.rows), f"{vectors.name}, {vectors.dimensions} dimensions, {len(vectors.rows):,} rows"
    compared = [one for one in designs(centred=vectors.centred) if one.kind in kinds]
    if not compared:
        _say(f"{title}: an exact search has ruled out every kind")
        return TableResult(vectors.name, vectors.dimensions, rows, ())
    compared.insert(0, TODAY)
    filled = await fill(server, vectors, compared, lambda what: _say(f"{title}: {what}"))
    _say(f"{title}: measuring")
    every = [setting for one in compared for setting in settings(one, rows)]
    true = nearest(vectors.rows, vectors.questions, DENSE_DEPTH)
    warm = await measure_warm(server, filled, every, vectors.questions, true)
    measured = tuple(
        Measured(one, filled.sizes[one.design], filled.seconds[str(one.design)], found) for one, found in warm.items()
    )
    table = TableResult(vectors.name, vectors.dimensions, rows, measured)
    once = [one.setting for one in chosen(table, sets)]
    return table.with_cold(await measure_cold(server, filled, once, vectors.questions[:cold_questions], _say))


def _texts_alone(embedded: EmbeddedTexts, questions: int) -> Iterator[ExactShares]:
    """Yield what exact searches keep of texts alone, by their number, and of as many made rows."""
    asked, count = embedded.some_questions(questions), len(embedded.texts)
    mixed = np.random.default_rng(0).permutation(embedded.texts)
    for fewer in (4, 2, 1):
        yield exact_shares(widened(mixed[: count // fewer], asked, count // fewer), "real, texts alone")
    yield exact_shares(widened(made_rows(embedded.texts, count), asked, count), "real, made rows alone")
