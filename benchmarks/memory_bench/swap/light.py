"""A setting of the swap benchmark with light models: many rows with invented texts; vectors identify their model."""

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from memory_bench.postgres import bare_model
from memory_bench.servers import running_server
from memory_bench.swap.load import Recalled, forbidden_vectors
from memory_bench.swap.models import DIMENSIONS, MODELS
from memory_bench.swap.setting import Memories
from tests.support.invented import question, texts

_QUESTIONS = 400


class LightDetector:
    """Recognises by a negative cosine that vectors of different models were compared."""

    async def prepare(self, recalls: Sequence[Recalled]) -> None:
        """Do nothing: the sign of a cosine suffices to recognise a comparison across models."""

    def crossings(self, recalled: Recalled) -> int:
        """Return how many memories have a negative cosine."""
        return sum(1 for _, score in recalled.scores if score < 0)

    async def wrong_rows(self, dsn: str) -> Mapping[str, int]:
        """Count the vectors that another model than the column's has made, and the vectors of private rows."""
        return await forbidden_vectors(dsn, active_sign=MODELS["second"].sign)

    async def query_of_former_model(self, text: str) -> list[float]:
        """Return the text's vector by the first model, which the swap replaces."""
        vector: list[float] = MODELS["first"].vector(text).tolist()
        return vector


class LightSetting:
    """Three light models over `rows` invented texts."""

    former = bare_model("first", DIMENSIONS)
    good = "second"
    bad = "bad"

    def __init__(self, rows: int) -> None:
        known = texts(rows)
        generator = random.Random(5)  # noqa: S311  (a benchmark's data)
        chosen = generator.sample(range(rows), min(_QUESTIONS, rows))
        self.memories = Memories(
            texts=known,
            questions=[
                {"query_id": str(at), "text": question(known[at], generator), "relevant_ids": [at + 1]} for at in chosen
            ],
            written=range(1, rows + 1),
        )

    @contextmanager
    def serve(self, name: str, log: Path) -> Iterator[str]:
        """Run an embedding server for a light model; yield its URL once it is ready."""
        with running_server(
            name, lambda port: [sys.executable, "-m", "memory_bench.swap.embedder", name, str(port)], "/v1/models", log
        ) as url:
            yield url

    def ask(self, generator: random.Random) -> str:
        """Return five words of a random memory."""
        return question(generator.choice(self.memories.texts), generator)

    def detector(self, urls: Mapping[str, str]) -> LightDetector:  # noqa: ARG002  (other detectors embed)
        """Return the detector, which needs no embedder."""
        return LightDetector()
