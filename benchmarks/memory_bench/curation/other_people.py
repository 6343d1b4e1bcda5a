"""Judges `memory curate` on notes in a voice that it was not fitted to."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memory_bench.curation.fitting import Array, Material, as_array, logistic, proposals, regress, tally
from memory_bench.curation.truth import Truth, read_truth
from memory_bench.harness.dataset import Dataset, Memory, read_corpus
from memory_bench.harness.vectors import embed_dataset
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.report import REPOSITORY
from memory_recall.curation.candidates_sql import read_frequencies, read_pairs
from memory_recall.curation.decisions import THRESHOLD, Judgement
from memory_recall.curation.features import compute_features
from memory_recall.postgres.connection import Pool
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.supersessions import has_links

_SET = REPOSITORY / "examples" / "restatements"


@dataclass(frozen=True, slots=True)
class OtherPeople:
    """The pairs of several people's notes. `voices` and `people` hold the voice and the writer of each pair's notes."""

    material: Material
    voices: NDArray[np.str_]
    people: NDArray[np.str_]

    def of(self, voice: str, proposed: Sequence[Judgement]) -> list[Judgement]:
        """Return those proposals whose memories are in this voice."""
        newer = {pair for (_, pair), own in zip(self.material.ids, self.voices == voice, strict=True) if own}
        return [one for one in proposed if one.pair.newer.id in newer]

    def net_by_person(self, proposed: Sequence[Judgement]) -> list[int]:
        """Return for each person, in the order of names, how many proposals are restatements less how many are not."""
        owners = {newer: str(person) for (_, newer), person in zip(self.material.ids, self.people, strict=True)}
        of_person: dict[str, list[Judgement]] = {person: [] for person in sorted(set(owners.values()))}
        for one in proposed:
            of_person[owners[one.pair.newer.id]].append(one)
        return [found - wrong for found, wrong in (tally(self.material, own) for own in of_person.values())]


async def read_material(pool: Pool, memories: Sequence[Memory], truth: Truth) -> Material:
    """Give the memories their dates, and read the pairs as `memory curate find` does."""
    async with pool.acquire() as connection:
        dates = [(one.id, one.created_at) for one in memories]
        await connection.executemany("UPDATE memories SET created_at = $2 WHERE id = $1", dates)
        table = await require_schema(connection, "memories")
        links = await has_links(connection, table)
        pairs = await read_pairs(connection, table, user=None, since=None, links=links)
        frequencies = await read_frequencies(connection, table, user=None, links=links)
    return Material(pairs, as_array(compute_features(pairs, frequencies)), frequencies, truth)


def read_other_people(url: str) -> OtherPeople:
    """Fill a database with examples/restatements, with vectors of the embedder at `url`, and read the pairs.

    Raises:
        MemoryIndexError: the embedder returned no vectors.
    """
    memories, _ = read_corpus(_SET / "corpus.jsonl")
    truth = read_truth(_SET / "restatements.jsonl")
    database = BenchmarkDatabase()
    try:
        dataset = Dataset(_SET.name, tuple(memories), (), 0, "")
        database.fill(memories, database.wait(embed_dataset(dataset, url)))
        material = database.wait(read_material(database.pool("plain"), memories, truth))
    finally:
        database.close()
    voices, people = _read_field(_SET / "corpus.jsonl", "voice"), _read_field(_SET / "corpus.jsonl", "user_id")
    newer = [newer for _, newer in material.ids]
    return OtherPeople(material, np.array([voices[one] for one in newer]), np.array([people[one] for one in newer]))


def _read_field(corpus: Path, field: str) -> dict[int, str]:
    lines = (json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines())
    return {line["id"]: line[field] for line in lines}


def fit_all(materials: Sequence[Material]) -> tuple[float, Array]:
    """Return the bias and the weights that all pairs of these sets teach."""
    return regress(np.vstack([one.features for one in materials]), np.concatenate([one.labels for one in materials]))


def judge_other_people(others: OtherPeople, homelab: Material) -> list[Judgement]:
    """Return the proposals for all people's pairs, by the scores of `score_other_people` and the shipped threshold."""
    scores = score_other_people(others, homelab)
    return proposals(others.material, scores, np.ones(len(scores), dtype=np.bool_), THRESHOLD)


def score_other_people(others: OtherPeople, homelab: Material) -> Array:
    """Return the scores of all pairs, each voice's by the weights that homelab and all other voices teach."""
    material = others.material
    scores = np.zeros(len(material.pairs))
    for voice in np.unique(others.voices):
        own = others.voices == voice
        features = np.vstack([material.features[~own], homelab.features])
        bias, weights = regress(features, np.concatenate([material.labels[~own], homelab.labels]))
        scores[own] = logistic(bias + material.features[own] @ weights)
    return scores
