"""The light models as a setting of the swap benchmark: many rows, invented texts, vectors that bear a mark."""

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from memory_bench.postgres import bare_model
from memory_bench.servers import running_server
from memory_bench.swap.load import Recalled, forbidden_vectors, question, texts
from memory_bench.swap.models import DIMENSIONS, MODELS
from memory_bench.swap.setting import Memories

_QUESTIONS = 400


class LightDetector:
    """Recognises by a negative cosine that vectors of different models were compared."""

    async def prepare(self, recalls: Sequence[Recalled]) -> None:
        """Nothing has to be prepared: the marks of the vectors say everything."""

    def crossings(self, recalled: Recalled) -> int:
        """Return how many memories have a negative cosine."""
        return sum(1 for _, score in recalled.scores if score < 0)

    async def wrong_rows(self, dsn: str) -> Mapping[str, int]:
        """Count the vectors whose mark is that of another model than the column's, and those of private rows."""
        return await forbidden_vectors(dsn, active_sign=MODELS["second"].sign)

    async def query_of_former_model(self, text: str) -> list[float]:
        """Return the first model's vector."""
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
        """Run the small server of a light model."""
        with running_server(
            name, lambda port: [sys.executable, "-m", "memory_bench.swap.embedder", name, str(port)], "/v1/models", log
        ) as url:
            yield url

    def ask(self, generator: random.Random) -> str:
        """Return five words of a memory."""
        return question(generator.choice(self.memories.texts), generator)

    def detector(self, urls: Mapping[str, str]) -> LightDetector:  # noqa: ARG002  (other detectors embed)
        """Return the detector, which needs no embedder."""
        return LightDetector()
