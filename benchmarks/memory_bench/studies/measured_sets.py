"""Reads the labelled sets of a study, and embeds them and gathers the candidates of both legs."""

from dataclasses import dataclass
from pathlib import Path

from memory_bench.harness.dataset import Dataset, load_dataset
from memory_bench.harness.vectors import embed_dataset
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.recall.evidence import gather, read_lexemes
from memory_bench.recall.prompts import in_prompts
from memory_bench.report import REPOSITORY, console
from memory_bench.studies.questions import LabelledSet
from memory_recall.search.fusion import default_fusion

OWN_DIRECTORY = REPOSITORY / "examples" / "homelab"


@dataclass(frozen=True, slots=True)
class MeasuredSet:
    """A labelled set, and the same questions inside prompts."""

    plain: LabelledSet
    prompts: LabelledSet


def load_sets(directory: Path) -> list[Dataset]:
    """Read every labelled set below a directory, and examples/homelab.

    Raises:
        DatasetError: a set contains a mistake.
    """
    found = sorted(one.parent for one in directory.glob("*/corpus.jsonl"))
    return [load_dataset(one) for one in (*found, OWN_DIRECTORY)]


def measure_set(dataset: Dataset, url: str, *, seed: int) -> MeasuredSet:
    """Gather the candidates of a set's questions, bare and inside prompts, with the embedder at `url`.

    Raises:
        MemoryIndexError: the embedder returned no vectors.
    """
    console.print(f"[bold]{dataset.name}[/]")
    database = BenchmarkDatabase()
    try:
        return MeasuredSet(_labelled(dataset, database, url), _labelled(in_prompts(dataset, seed=seed), database, url))
    finally:
        database.close()


def _labelled(dataset: Dataset, database: BenchmarkDatabase, url: str) -> LabelledSet:
    embedded = database.wait(embed_dataset(dataset, url))
    database.fill(dataset.memories, embedded)
    database.pool("plain")  # opened here: no coroutine can wait for it
    evidence = gather(dataset, read_lexemes(dataset, database), embedded)
    return LabelledSet(dataset, evidence, embedded, default_fusion(embedded.model))
