"""The options of a recall over Postgres: one frozen value that checks itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from memory_recall.schema.table import ACTIVE, VectorColumn
from memory_recall.search.fusion import Fusion
from memory_recall.search.period import PeriodFinder
from memory_recall.search.query import Lexical
from memory_recall.search.query_embedding import EMBEDDING_SECONDS
from memory_recall.search.result import RecallResult
from memory_recall.search.validation import check_fields

TIME_BUDGET_SECONDS = 2.0


def _below_time_budget(seconds: float, info: ValidationInfo) -> float:
    if seconds >= info.data.get("time_budget", float("inf")):
        raise PydanticCustomError("budget", "Input should be less than the `time_budget`")
    return seconds


Seconds = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, slots=True)
class RecallOptions:
    """Everything about a recall that does not depend on its query.

    `lexical` is "bm25", or "ts_rank" to rank as the memory server itself does. With `fusion` None, the default fusion
    of the query's model is used. `time_budget` (seconds) limits a whole recall, whatever wraps it, and
    `embedding_budget` (seconds) the embedding of its query. With `require_index` False, the dense leg also searches a
    table without an HNSW index. `observe` is called with every result. `temporal` finds the time that a query names.
    With `parallel_legs` False, every recall uses only one connection. With `concept_graph` False, recalls leave out the
    graph leg of a table that has a concept graph.

    Raises:
        InvalidInput: a field is of the wrong type or out of range, or the `embedding_budget` is not below the
            `time_budget`. The message names all faults.
    """

    table: str = "memories"
    lexical: Lexical = "bm25"
    fusion: Fusion | None = None
    time_budget: Seconds = TIME_BUDGET_SECONDS
    embedding_budget: Annotated[Seconds, AfterValidator(_below_time_budget)] = EMBEDDING_SECONDS
    require_index: bool = True
    column: VectorColumn = ACTIVE
    observe: Callable[[RecallResult], None] | None = None
    temporal: PeriodFinder | None = None
    parallel_legs: bool = True
    concept_graph: bool = True

    def __post_init__(self) -> None:
        check_fields(self)


DEFAULT_OPTIONS = RecallOptions()
