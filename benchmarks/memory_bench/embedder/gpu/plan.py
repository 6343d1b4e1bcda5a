"""The plan of a run on a GPU: more texts at once than on a CPU, in shorter turns, since a GPU is so much faster."""

from memory_bench.embedder.plan import (
    ACCEPTANCE_CONCURRENCY,
    ACCEPTANCE_TOKENS,
    LARGE,
    MINILM,
    QUERY_TOKENS,
    DocumentPoint,
    Extent,
    MixedPlan,
    ModelPlan,
    RerankPlan,
)

_TEXTS = 64  # in a request: what a backfill sends


def gpu_plan(extent: Extent) -> tuple[ModelPlan, ...]:
    """Return the plan for each model of a run on a GPU; the smallest model comes first."""
    quick, full = extent is Extent.QUICK, extent is Extent.FULL
    rounds, seconds = (3, 0.3) if quick else (9, 2.0) if full else (5, 1.0)
    bulk = {MINILM: 2048, LARGE: 512} if quick else {MINILM: 8192, LARGE: 2048}
    return tuple(_model(name, rounds, seconds, bulk_texts=texts) for name, texts in bulk.items())


def _model(name: str, rounds: int, seconds: float, *, bulk_texts: int) -> ModelPlan:
    points = [(tokens, _TEXTS) for tokens in (ACCEPTANCE_TOKENS, QUERY_TOKENS, 400)]
    return ModelPlan(
        model=name,
        documents=tuple(
            DocumentPoint(tokens, ACCEPTANCE_CONCURRENCY, texts, rounds, everyone=True, target_seconds=seconds)
            for tokens, texts in points
        ),
        query_tokens=(QUERY_TOKENS, ACCEPTANCE_TOKENS),
        query_rounds=rounds,
        queries_a_round=20,
        mixed=MixedPlan(rounds, texts=bulk_texts, texts_per_request=_TEXTS, query_pause_seconds=0.01),
        reranking=RerankPlan(rounds, requests=32, query_pause_seconds=0.01) if name == MINILM else None,
        calibrate=True,
    )
