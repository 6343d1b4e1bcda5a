"""The statements of the study: the index of each design, and the dense leg as a recall writes it."""
# ruff: noqa: S608  (statements are put together from our own constants; the query's vector is bound)

from dataclasses import dataclass
from typing import Any

from memory_bench.index_study.designs import EF_CONSTRUCTION, Design, Setting, first_dimensions
from memory_recall.hnsw.search_effort import DENSE_DEPTH

# Indexes that differ in m alone have the same expression, and Postgres takes either; it takes none that is not valid.
_SHOW = """
UPDATE pg_index SET indisvalid = (indexrelid = to_regclass($1)) WHERE indrelid = to_regclass('memories')
   AND indexrelid IN (SELECT oid FROM pg_class WHERE relname LIKE 'idx\\_study\\_%')"""

# As in a recall's statement, which says why.
_INFLATE_SCAN_COST = "(SELECT count(*) FROM generate_series(m.id, m.id)) IS NOT NULL"


async def show(connection: Any, design: Design) -> None:  # noqa: ANN401  (asyncpg's connection)
    """Let Postgres use the index of one design alone; the connection is a superuser's."""
    await connection.execute(_SHOW, design.index)
    await connection.execute("DISCARD PLANS")  # they do not depend on whether an index is valid


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements for vectors of `dimensions` dimensions, whose mean is `mean`, written as a vector's text."""

    dimensions: int
    mean: str | None = None

    def create(self, design: Design) -> str:
        """Return the statement that builds a design's index."""
        operators = {"halves": "halfvec_cosine_ops", "first dimensions": "halfvec_cosine_ops"}
        return (
            f"CREATE INDEX {design.index} ON memories USING hnsw ({self._indexed(design, 'embedding')}"
            f" {operators.get(design.kind, 'bit_hamming_ops')})"
            f" WITH (m = {design.m}, ef_construction = {EF_CONSTRUCTION})"
        )

    def search(self, setting: Setting) -> str:
        """Return the dense leg in one setting; `$1` is the query's vector as an array of `real`.

        Its rows are `id`, `dense_rank` and `dense_score`, at most fifty, the nearest first.
        """
        vector = f"(SELECT $1::real[]::halfvec({self.dimensions}))"
        distance = f"(m.embedding <=> {vector})::float8"
        rows = f"memories m WHERE (SELECT open FROM gate) AND m.deleted_at IS NULL AND {_INFLATE_SCAN_COST}"
        near = f"{rows} AND m.embedding IS NOT NULL ORDER BY {self._distance(setting.design, vector)}"
        if setting.candidates is None:
            nearest = f"SELECT m.id, {distance} AS distance FROM {near} LIMIT {DENSE_DEPTH}"
        else:
            first = f"SELECT m.id, m.embedding FROM {near} LIMIT {setting.candidates}"
            nearest = f"SELECT m.id, {distance} AS distance FROM ({first}) m"
        return f"""
WITH gate AS MATERIALIZED (
  SELECT set_config('hnsw.ef_search', '{setting.ef_search}', true) IS NOT NULL
         AND set_config('hnsw.iterative_scan', 'off', true) IS NOT NULL AS open
)
SELECT id, row_number() OVER (ORDER BY distance + 0, id) AS dense_rank, 1 - distance AS dense_score
  FROM ({nearest}) nearest
 ORDER BY distance + 0, id LIMIT {DENSE_DEPTH}"""

    def _distance(self, design: Design, vector: str) -> str:
        operator = "<=>" if design.kind in {"halves", "first dimensions"} else "<~>"
        return f"{self._indexed(design, 'm.embedding')} {operator} {self._indexed(design, vector)}"

    def _indexed(self, design: Design, vector: str) -> str:
        """Return the expression that a design indexes, of a column or of the query's vector."""
        if design.kind == "halves":
            return vector
        if design.kind == "first dimensions":
            kept = first_dimensions(self.dimensions)
            return f"(subvector({vector}, 1, {kept})::halfvec({kept}))"
        if design.kind == "centred signs":
            vector = f"({vector} - '{self.mean}'::halfvec({self.dimensions}))"
        return f"(binary_quantize({vector})::bit({self.dimensions}))"
