"""The interfaces by which the swap benchmark gets its models and memories."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

from memory_bench.swap.load import Recalled
from memory_recall.embedding.profiles import ModelProfile


@dataclass(frozen=True)
class Memories:
    """The memories of the table and the labelled questions about them.

    The rows have the ids 1, 2, and so on, in the order of `texts`; `sensitive` holds the ids of those that are
    sensitive. Only the rows of `written` are changed while the benchmark runs. `questions` are lines in the form of a
    labelled set's queries.jsonl.
    """

    texts: Sequence[str]
    questions: Sequence[Mapping[str, Any]]
    written: range
    sensitive: Sequence[int] = ()


class Detector(Protocol):
    """Detects comparisons of vectors of different models, and vectors that the table should not hold."""

    async def prepare(self, recalls: Sequence[Recalled]) -> None:
        """Prepare for the other methods; called once, after the load has ended."""
        ...

    def crossings(self, recalled: Recalled) -> int:
        """Return how many memories of a result have a score that compares vectors of different models."""
        ...

    async def wrong_rows(self, dsn: str) -> Mapping[str, int]:
        """Count the vectors that must not exist, given that the good model is active.

        Returns three counts: `active`, the vectors in the active column that the good model has not made; `standby`,
        those in the standby column that the former model has not made; and `private`, the vectors of sensitive or
        deleted rows.
        """
        ...

    async def query_of_former_model(self, text: str) -> list[float]:
        """Return a question's vector by the former model, to compare vectors of different models on purpose."""
        ...


class Setting(Protocol):
    """The models of one run: the former one, which is active at first, a good one and a bad one."""

    former: ModelProfile
    good: str
    bad: str
    memories: Memories

    def serve(self, name: str, log: Path) -> AbstractContextManager[str]:
        """Run the embedder of a model in a process of its own; yield its URL once it is ready."""
        ...

    def ask(self, generator: Random) -> str:
        """Return the query text of the next recall."""
        ...

    def detector(self, urls: Mapping[str, str]) -> Detector:
        """Return the detector; `urls` holds the URL of each model's embedder."""
        ...
