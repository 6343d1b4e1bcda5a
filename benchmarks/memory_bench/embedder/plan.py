"""The plan of a run of the embedder benchmark as pure data, which can be read and tested without running it."""

from dataclasses import dataclass
from enum import StrEnum

MINILM = "all-MiniLM-L6-v2"
LARGE = "bge-large-shaped"
ACCEPTANCE_TOKENS = 122
ACCEPTANCE_CONCURRENCY = 8
QUERY_TOKENS = 12  # a question of about ten words


class Extent(StrEnum):
    """How much a run of the benchmark measures."""

    QUICK = "quick"
    DEFAULT = "default"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class DocumentPoint:
    """The plan for measuring documents of one length at one number of concurrent requests.

    `target_seconds` is about how long each program is measured in each round. With `everyone`, the programs without an
    HTTP interface are measured as well.
    """

    tokens: int
    concurrency: int
    texts_per_request: int
    rounds: int
    everyone: bool
    target_seconds: float


@dataclass(frozen=True, slots=True)
class MixedPlan:
    """The plan for measuring queries while clients send documents without pause."""

    rounds: int
    texts: int = 128
    clients: int = 2
    texts_per_request: int = 16
    query_pause_seconds: float = 0.1


@dataclass(frozen=True, slots=True)
class RerankPlan:
    """The plan for measuring queries while clients have the results of recalls reranked without pause."""

    rounds: int
    requests: int = 8
    texts_per_request: int = 30
    clients: int = 2
    idle_queries: int = 20
    query_pause_seconds: float = 0.1


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The plan for measuring one model.

    With `calibrate`, the fastest settings of llama-server and of the raw loop are found first. With `peers`, programs
    that do not stand on llama.cpp are measured on a CPU as well.
    """

    model: str
    documents: tuple[DocumentPoint, ...]
    query_tokens: tuple[int, ...]
    query_rounds: int
    queries_a_round: int
    mixed: MixedPlan | None
    reranking: RerankPlan | None
    calibrate: bool
    peers: bool = False

    @property
    def lengths(self) -> tuple[int, ...]:
        """All lengths of text in the plan, in tokens."""
        mixed = {ACCEPTANCE_TOKENS, QUERY_TOKENS} if self.mixed else set()
        return tuple(sorted({point.tokens for point in self.documents} | set(self.query_tokens) | mixed))

    def measurement_count(self, peers: int) -> int:
        """Return the number of single measurements in the plan, with `peers` programs beside llama.cpp's."""
        # Two servers take part in each measurement, and three subjects without HTTP where `everyone` is set.
        documents = sum(point.rounds * (5 + peers if point.everyone else 2) for point in self.documents)
        settings = 4 if self.calibrate else 1
        return (
            settings
            + peers
            + documents
            + (4 + peers) * self.query_rounds * len(self.query_tokens)
            + (3 * self.mixed.rounds if self.mixed else 0)
            + (self.reranking.rounds if self.reranking else 0)
        )


_SHAPES = ((8, 4), (1, 32), (32, 1))  # (requests at once, texts in each): always 32 texts at once


def plan(extent: Extent) -> tuple[ModelPlan, ...]:
    """Return the plan for each model of a run; the smallest model comes first."""
    if extent is Extent.QUICK:
        return (_quick(),)
    minilm = ModelPlan(
        model=MINILM,
        documents=_minilm_documents(extent),
        query_tokens=(QUERY_TOKENS, 60, ACCEPTANCE_TOKENS),
        query_rounds=5 if extent is Extent.DEFAULT else 9,
        queries_a_round=20,
        mixed=MixedPlan(rounds=7 if extent is Extent.DEFAULT else 15),
        reranking=RerankPlan(rounds=5 if extent is Extent.DEFAULT else 15),
        calibrate=True,
        peers=True,
    )
    return (minilm, _large(extent))


def _minilm_documents(extent: Extent) -> tuple[DocumentPoint, ...]:
    points = []
    for tokens in (ACCEPTANCE_TOKENS, QUERY_TOKENS, 60, 400):  # the judged length first: a run may be stopped
        for concurrency, texts in _SHAPES:
            main = concurrency == ACCEPTANCE_CONCURRENCY
            judged = main and tokens == ACCEPTANCE_TOKENS
            rounds = 9 if judged else 3 if main else 2
            seconds = 4.0 if judged else 2.0  # longer turns, since one core is idle at the end of each
            if extent is Extent.FULL:
                rounds, seconds = rounds + 4, 2 * seconds
            points.append(DocumentPoint(tokens, concurrency, texts, rounds, everyone=main, target_seconds=seconds))
    return tuple(points)


def _large(extent: Extent) -> ModelPlan:
    full = extent is Extent.FULL
    lengths = (QUERY_TOKENS, 60, ACCEPTANCE_TOKENS, 400) if full else (ACCEPTANCE_TOKENS,)
    shapes = ((1, 8), (8, 1), (32, 1)) if full else ((8, 1),)
    return ModelPlan(
        model=LARGE,
        documents=tuple(
            DocumentPoint(
                tokens,
                concurrency,
                texts,
                5 if full else 3,
                everyone=concurrency == ACCEPTANCE_CONCURRENCY,
                target_seconds=4.0,
            )
            for tokens in lengths
            for concurrency, texts in shapes
        ),
        query_tokens=(QUERY_TOKENS,),
        query_rounds=5 if full else 3,
        queries_a_round=5,
        mixed=None,
        reranking=None,
        calibrate=False,
    )


def _quick() -> ModelPlan:
    return ModelPlan(
        model=MINILM,
        documents=(DocumentPoint(ACCEPTANCE_TOKENS, ACCEPTANCE_CONCURRENCY, 1, 1, everyone=True, target_seconds=0.2),),
        query_tokens=(QUERY_TOKENS, ACCEPTANCE_TOKENS),
        query_rounds=1,
        queries_a_round=3,
        mixed=MixedPlan(rounds=1, texts=32, texts_per_request=4, query_pause_seconds=0.02),
        reranking=RerankPlan(rounds=1, requests=4, texts_per_request=6, idle_queries=3, query_pause_seconds=0.02),
        calibrate=False,
    )
