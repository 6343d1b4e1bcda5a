"""The records of a run of the embedder benchmark, in the form in which they are written to JSON files."""

from dataclasses import asdict, dataclass, field
from typing import Any

from memory_bench.embedder.cpu.recall_loss import RecallLoss

OURS = "memory-embedder"
OURS_Q8_0 = "memory-embedder, Q8_0"
LLAMA_SERVER = "llama-server"
SENTENCE_TRANSFORMERS = "sentence-transformers"
PYTORCH_F32 = "sentence-transformers, F32"
PYTORCH_BF16 = "sentence-transformers, BF16"
ONNX_F32 = "ONNX Runtime, F32"
ONNX_INT8 = "ONNX Runtime, INT8"
RAW = "raw loop"
RAW_ONE_THREAD = "raw loop, one thread"
LLAMA_CLASS = "Llama.embed"
LLAMA_CLASS_SMALL = "Llama.embed (512)"


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """The seconds that one program took for documents in one round, and the number of concurrent requests."""

    subject: str
    tokens: int
    concurrency: int
    texts_per_request: int
    round: int
    texts: int
    seconds: float

    @property
    def rate(self) -> float:
        """Documents per second."""
        return self.texts / self.seconds


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """The durations of one program's queries in one round, in which queries are sent singly while nothing else runs."""

    subject: str
    tokens: int
    round: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class MixedRecord:
    """The seconds that one server took for bulk documents in one round, alone or while queries were sent.

    `queries` holds the durations in seconds of those queries that ended before the documents did.
    """

    subject: str
    round: int
    texts: int
    bulk_seconds: float
    with_queries: bool
    queries: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RerankRecord:
    """The durations in seconds of our server's queries in one round, while nothing else runs and beside reranking.

    `batch_seconds` is the mean duration of a batch of pairs while no query is sent.
    """

    round: int
    idle: tuple[float, ...]
    beside: tuple[float, ...]
    batch_seconds: float


@dataclass(slots=True)
class Measurements:
    """All measurements of one model, on a GPU or a CPU.

    `gemm_flops` is in operations per second, of a product in F16 on a GPU and in F32 on a CPU; `text_flops` is in
    operations per text. `eight_bit_cosine` is the least cosine to our vectors of each program that computes in eight
    bits, and `eight_bit_recall` what recall loses by its vectors on labelled sets.
    """

    model: str
    least_cosine: float
    gpu: bool = False
    gemm_flops: list[float] = field(default_factory=list)
    text_flops: dict[int, float] = field(default_factory=dict)
    raw_calibration: list[dict[str, object]] = field(default_factory=list)
    server_calibration: list[dict[str, object]] = field(default_factory=list)
    peer_calibration: dict[str, dict[str, object]] = field(default_factory=dict)
    eight_bit_cosine: dict[str, float] = field(default_factory=dict)
    eight_bit_recall: list[RecallLoss] = field(default_factory=list)
    embedder: dict[str, object] = field(default_factory=dict)
    documents: list[DocumentRecord] = field(default_factory=list)
    queries: list[QueryRecord] = field(default_factory=list)
    mixed: list[MixedRecord] = field(default_factory=list)
    reranking: list[RerankRecord] = field(default_factory=list)
    document_batch_seconds: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the measurements as a dictionary that JSON can represent."""
        return asdict(self)
