"""Compares our dense leg with published figures of the same model on the LoCoMo set.

The published figures are those that MTEB gives for LoCoMo in LMEB. MTEB searches the same 5,882 conversation turns,
also within the question's conversation only, and uses the same strata, with 840 / 280 / 321 / 89 of our 841 / 282 / 321
/ 92 questions. Its documents are worded differently from our rows, and the model is sensitive to wording: if the time
precedes each turn, recall@10 on the stratum `single` is between .46 and .57, depending only on word order and
punctuation.

The following is known of MTEB's wording, from its statistics and from a derived set that keeps the fields. A document
has a title with session, turn and "Data time: 01:56 PM on Monday 08 May, 2023", then the speaker and the text without
the captions of pictures. All documents together have 1,169,144 characters, the shortest 74 and the longest 532. The
separators are not known. `reword_as_published` uses the one of 20 tried wordings that agrees best with the published
figures; the same wording with round brackets gives results within .015.
"""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np

from memory_bench.harness.dataset import Dataset, Memory
from memory_bench.harness.scoring import Scorer
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.recall.named_times import STAMP, written_times
from memory_recall.evaluation.measures import DEPTH

STRATA = {"single": "single_hop", "multihop": "multi_hop", "temporal": "temporal_reasoning", "open": "open_domain"}
_SESSION = re.compile(r"(?:^|,)session-(\d+)(?:,|$)")
_CAPTION = re.compile(r" ?\[shares [^\]]*\]$")


def read_published(path: Path, model: str) -> dict[str, float]:
    """Read a model's published recall@10 from a TSV file; return it by stratum, under the names that our set uses.

    The file names a model `PUBLISHER__NAME`. The result is empty if the file has no figures of the model.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = {
            row["subset"]: float(row["recall@10"])
            for row in csv.DictReader(file, delimiter="\t")
            if row["model"].endswith(f"__{model}")
        }
    return {ours: rows[theirs] for ours, theirs in STRATA.items() if theirs in rows}


def reword_as_published(dataset: Dataset) -> Dataset | None:
    """Return the set with its rows reworded like MTEB's documents, or None if a row names no session or no time."""
    written = written_times(dataset.memories)
    turns: Counter[tuple[str | None, str]] = Counter()
    memories = []
    for memory in dataset.memories:
        session = _SESSION.search(memory.tags)
        if session is None or memory.id not in written:
            return None
        turns[memory.scope, session[1]] += 1
        place = f"[Session {session[1]}, Turn {turns[memory.scope, session[1]]}]"
        memories.append(replace(memory, content=f"{place} {_time(written[memory.id])} {_said(memory)}"))
    return replace(dataset, memories=tuple(memories))


def _time(moment: datetime) -> str:
    return f"Data time: {moment:%I:%M %p on %A %d %B, %Y}"


def _said(memory: Memory) -> str:
    return _CAPTION.sub("", STAMP.sub("", memory.content, count=1))


def exact_recall_by_stratum(dataset: Dataset, embedded: EmbeddedSet) -> Mapping[str, float]:
    """Return the recall@10 of exact dense search within each question's scope, by stratum."""
    rows: dict[str | None, list[int]] = {}
    for place, memory in enumerate(dataset.memories):
        rows.setdefault(memory.scope, []).append(place)
    rankings = []
    for query, vector in zip(dataset.queries, embedded.queries, strict=True):
        inside = rows[query.scope] if query.scope is not None else range(len(dataset.memories))
        rankings.append([dataset.memories[place].id for place in _nearest(embedded, vector, inside)])
    found: dict[str, list[float]] = {}
    for query, scores in zip(dataset.queries, Scorer(dataset.queries).score(rankings), strict=True):
        found.setdefault(query.stratum, []).append(scores["recall@10"])
    return {stratum: float(np.mean(values)) for stratum, values in found.items()}


def _nearest(embedded: EmbeddedSet, vector: "np.typing.NDArray[np.float32]", inside: Sequence[int]) -> list[int]:
    places = np.asarray(inside)
    order = np.argsort(-(embedded.memories[places] @ vector), kind="stable")[:DEPTH]
    return [int(place) for place in places[order]]
