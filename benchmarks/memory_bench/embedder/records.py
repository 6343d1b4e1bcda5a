"""What was measured, as it is written to the results file."""

from dataclasses import asdict, dataclass, field
from typing import Any

OURS = "memory-embedder"
LLAMA_SERVER = "llama-server"
RAW = "raw loop"
RAW_ONE_THREAD = "raw loop, one thread"
LLAMA_CLASS = "Llama.embed"
LLAMA_CLASS_SMALL = "Llama.embed (512)"


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """One subject's turn with documents."""

    subject: str
    tokens: int
    concurrency: int
    texts_per_request: int
    round: int
    texts: int
    seconds: float

    @property
    def rate(self) -> float:
        """Texts a second."""
        return self.texts / self.seconds


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """One subject's turn with queries, one at a time, nothing else running."""

    subject: str
    tokens: int
    round: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class MixedRecord:
    """Bulk documents, alone or with queries beside them; `queries` holds those that saw the full load."""

    subject: str
    round: int
    texts: int
    bulk_seconds: float
    with_queries: bool
    queries: tuple[float, ...]


@dataclass(slots=True)
class Measurements:
    """Everything about one model."""

    model: str
    least_cosine: float
    gemm_flops: list[float] = field(default_factory=list)
    text_flops: dict[int, float] = field(default_factory=dict)
    raw_calibration: list[dict[str, object]] = field(default_factory=list)
    server_calibration: list[dict[str, object]] = field(default_factory=list)
    embedder: dict[str, object] = field(default_factory=dict)
    documents: list[DocumentRecord] = field(default_factory=list)
    queries: list[QueryRecord] = field(default_factory=list)
    mixed: list[MixedRecord] = field(default_factory=list)
    document_batch_seconds: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
