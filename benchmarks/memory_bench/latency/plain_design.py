"""The plain design that recall is compared with: a lexical and a dense query, whose results are fused in Python.

The lexical query ranks all rows that contain any word of the question by `ts_rank` and importance, as the memory API
does when no row contains all words. The dense query is a nearest-neighbour query with pgvector's defaults. Both results
are fused by reciprocal ranks.
"""

from typing import Any

from memory_recall import Fusion
from tests.support.reference_fusion import Candidate, fuse

_DEPTH = 50
_FUSION = Fusion(method="rrf", k=60)
_COLUMNS = "id, content, category, tags, importance, is_sensitive, created_at, updated_at"
_LEXICAL = f"""
SELECT {_COLUMNS}, ts_rank(search_vector, q) AS rank
  FROM memories, (SELECT replace(plainto_tsquery('english', $1)::text, ' & ', ' | ')::tsquery AS q) query
 WHERE search_vector @@ q AND deleted_at IS NULL
 ORDER BY ts_rank(search_vector, q) * 0.7 + importance * 0.3 DESC LIMIT {_DEPTH}"""  # noqa: S608  (our own constants)
_DENSE = f"""
SELECT {_COLUMNS}, 1 - (embedding <=> $1::real[]::halfvec) AS similarity
  FROM memories WHERE deleted_at IS NULL ORDER BY embedding <=> $1::real[]::halfvec LIMIT {_DEPTH}"""  # noqa: S608  (our own constants)


async def recall(pool: Any, text: str, vector: list[float], limit: int) -> list[int]:  # noqa: ANN401  (asyncpg's pool)
    """Return the ids of the `limit` best rows by the plain design, best first."""
    async with pool.acquire() as connection:
        lexical = await connection.fetch(_LEXICAL, text)
        dense = await connection.fetch(_DENSE, vector)
    rows = {row["id"]: row for row in (*lexical, *dense)}
    lexical_ranks = {row["id"]: rank for rank, row in enumerate(lexical, start=1)}
    dense_ranks = {row["id"]: rank for rank, row in enumerate(dense, start=1)}
    candidates = [
        Candidate(one, row["importance"], lexical_ranks.get(one), None, dense_ranks.get(one), None)
        for one, row in rows.items()
    ]
    return [one.id for one in fuse(candidates, _FUSION)[:limit]]
