"""A setting of the swap benchmark with two real models of equal dimensions, over the memories of examples/homelab.

bge-small-en-v1.5 is active at first and all-MiniLM-L6-v2 is to take its place; the bad model is bge-small-en-v1.5 with
the first two of its twelve layers. Here a vector does not show which model made it. A comparison across models is
recognised by its cosine, which differs from the cosines that either of the two models yields for the question and the
memory.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import numpy as np
import numpy.typing as npt
from pgvector.asyncpg import register_vector

from memory_bench.servers import memory_embedder
from memory_bench.swap.load import Recalled
from memory_bench.swap.setting import Memories
from memory_recall import EmbedderClient
from memory_recall.embedding.profiles import PROFILES
from tests.support.invented import texts
from tests.support.labelled_set import json_lines, questions
from tests.support.model_files.cache import DEFAULT_MODEL_FILE, SECOND_MODEL_FILE
from tests.support.model_files.truncated import truncate

_FORMER, _GOOD, _BAD = "bge-small-en-v1.5", "all-MiniLM-L6-v2", "bge-small-two-layers"
_BAD_LAYERS = 2
_CLOSE = 0.01  # of two cosines: vectors are stored in half precision, and batches differ in the last digits
_BATCH = 32
_SHARED_PROCESSORS = {"OMP_WAIT_POLICY": "PASSIVE"}  # a thread that waits must not keep another embedder from computing

Vector = npt.NDArray[np.float32]


class RealDetector:
    """Recognises a comparison of vectors of different models by a cosine that neither of the two models yields."""

    def __init__(self, former: EmbedderClient, good: EmbedderClient) -> None:
        self._clients = (former, good)
        self._memories: list[dict[str, Vector]] = [{}, {}]
        self._questions: list[dict[str, Vector]] = [{}, {}]

    async def prepare(self, recalls: Sequence[Recalled]) -> None:
        """Embed the questions and the memories of all results with both models."""
        await self._embed_memories(content for one in recalls for content, _ in one.scores)
        for client, known in zip(self._clients, self._questions, strict=True):
            for batch in _batches({one.text for one in recalls} - known.keys()):
                known.update(zip(batch, (await client.embed_queries(batch)).vectors, strict=True))

    async def _embed_memories(self, contents: Iterable[str]) -> None:
        wanted = set(contents)
        for client, known in zip(self._clients, self._memories, strict=True):
            for batch in _batches(wanted - known.keys()):
                known.update(zip(batch, (await client.embed_documents(batch)).vectors, strict=True))

    def crossings(self, recalled: Recalled) -> int:
        """Return how many memories have a cosine that neither model yields."""
        return sum(
            1
            for content, score in recalled.scores
            if all(
                abs(float(questions[recalled.text] @ memories[content]) - score) > _CLOSE
                for questions, memories in zip(self._questions, self._memories, strict=True)
            )
        )

    async def wrong_rows(self, dsn: str) -> Mapping[str, int]:
        """Count vectors that differ from what the column's model computes for the text, and vectors of private rows."""
        connection = await asyncpg.connect(dsn)
        try:
            await register_vector(connection)
            rows = await connection.fetch(
                "SELECT content, embedding AS active, embedding_standby AS standby,"
                " is_sensitive OR deleted_at IS NOT NULL AS private FROM memories"
                " WHERE embedding IS NOT NULL OR embedding_standby IS NOT NULL"
            )
        finally:
            await connection.close()
        shown = [row for row in rows if not row["private"]]
        await self._embed_memories(row["content"] for row in shown)
        wrong = {"active": 0, "standby": 0, "private": len(rows) - len(shown)}
        for row in shown:
            for column, memories in zip(("standby", "active"), self._memories, strict=True):
                if row[column] is not None:
                    cosine = float(np.asarray(row[column].to_list(), dtype=np.float32) @ memories[row["content"]])
                    wrong[column] += cosine < 1 - _CLOSE
        return wrong

    async def query_of_former_model(self, text: str) -> list[float]:
        """Return the question's vector by the former model."""
        vector: list[float] = (await self._clients[0].embed_query(text)).tolist()
        return vector


class RealSetting:
    """Three real model files over examples/homelab and `invented` further memories, which alone are changed."""

    former = PROFILES[_FORMER]
    good = _GOOD
    bad = _BAD

    def __init__(self, homelab: Path, scratch: Path, *, invented: int) -> None:
        corpus = json_lines(homelab / "corpus.jsonl")
        if [line["id"] for line in corpus] != list(range(1, len(corpus) + 1)):
            raise ValueError(f"the ids in {homelab / 'corpus.jsonl'} are not 1, 2, and so on")
        self.memories = Memories(
            texts=[*(str(line["content"]) for line in corpus), *texts(invented)],
            questions=questions(homelab),
            written=range(len(corpus) + 1, len(corpus) + invented + 1),
            sensitive=[number for number, line in enumerate(corpus, start=1) if line["is_sensitive"]],
        )
        truncated = scratch / f"{_BAD}.gguf"
        truncate(SECOND_MODEL_FILE, truncated, layers=_BAD_LAYERS)
        self._files = {_FORMER: SECOND_MODEL_FILE, _GOOD: DEFAULT_MODEL_FILE, _BAD: truncated}

    @contextmanager
    def serve(self, name: str, log: Path) -> Iterator[str]:
        """Run our embedder with the model's file."""
        shape = ["--dimensions", str(self.former.dimensions), "--pooling", "cls", "--max-tokens", "512"]
        options = ["--model", name, "--allow-cpu", *(shape if name == _BAD else [])]
        with memory_embedder(self._files[name], log, options, environment=_SHARED_PROCESSORS) as server:
            yield server.url

    def ask(self, generator: random.Random) -> str:
        """Return the text of a labelled question."""
        return str(generator.choice(self.memories.questions)["text"])

    def detector(self, urls: Mapping[str, str]) -> RealDetector:
        """Return a detector that embeds with both models."""
        return RealDetector(EmbedderClient(urls[_FORMER], _FORMER), EmbedderClient(urls[_GOOD], _GOOD))


def _batches(wanted: set[str]) -> Iterator[list[str]]:
    ordered = sorted(wanted)
    return (ordered[start : start + _BATCH] for start in range(0, len(ordered), _BATCH))
