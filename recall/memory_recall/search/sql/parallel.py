"""The recall statement in three parts, for large tables: both legs at the same time, then their fusion.

One statement runs in one process of Postgres, one leg after the other. In a large table they take long enough that two
connections and a second round trip cost less. The lexical leg, as a rule the shorter one, also fetches the vectors of
the rows that it gives, which Postgres keeps apart from them. The last part looks every row up again, so that what was
deleted or moved out of a filter's reach meanwhile is left out and what became sensitive is masked, and it asks again
which model is active. Everything else is what the one statement does, and gives the same answer.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass, replace

from memory_recall.schema.table import MemoryTable
from memory_recall.search.sql.bm25_scoring import placed, scored
from memory_recall.search.sql.filters import Arguments, conditions
from memory_recall.search.sql.fusion import fused
from memory_recall.search.sql.statement import (
    NOTHING_DENSE,
    RecallQuery,
    cosine,
    dense_leg,
    gate,
    lexical_leg,
    page,
    pooled,
    query_vector,
)

Statement = tuple[str, list[object]]

WORTH_SPLITTING = 100_000  # rows; with 5,000 the second round trip takes as long as the shorter leg


@dataclass(frozen=True, slots=True)
class FoundByMeaning:
    """What the dense leg gave: rows, nearest first, with their cosines; `open` says whether it could take part."""

    open: bool
    ids: list[int]
    scores: list[float]


@dataclass(frozen=True, slots=True)
class FoundByWords:
    """What the lexical leg gave: rows with their scores, and the query's words with their weights.

    Rows that the leg would give by itself have a cosine, too, unless they have no vector; `open` is whether these mean
    anything.
    """

    open: bool
    ids: list[int]
    scores: list[float]
    cosines: list[float | None]
    words: list[str]  # each a tsquery
    weights: list[float]


def splits(query: RecallQuery) -> bool:
    """Whether the legs of this recall are worth two connections."""
    large = query.statistics is not None and query.statistics.rows >= WORTH_SPLITTING
    return large and query.legs == "both" and not query.api_lexical


def by_meaning(query: RecallQuery, table: MemoryTable) -> Statement:
    """The dense leg by itself; its one row is a `FoundByMeaning`."""
    arguments = Arguments()
    where = conditions(query.filters, arguments, table)
    vector = "" if query.dense is None else query_vector(query.dense, arguments, table)
    legs = f"WITH {gate(query, arguments, table)},{dense_leg(query, table, where, vector)}"
    return (
        f"""{legs}
SELECT (SELECT open FROM gate) AS open, coalesce(array_agg(id ORDER BY dense_rank), '{{}}') AS ids,
       coalesce(array_agg(dense_score ORDER BY dense_rank), '{{}}') AS scores
  FROM dense""",
        arguments.values,
    )


def by_words(query: RecallQuery, table: MemoryTable) -> Statement:
    """The lexical leg by itself; its one row is a `FoundByWords`."""
    assert query.dense is not None  # noqa: S101  (see splits)
    arguments = Arguments()
    where = conditions(query.filters, arguments, table)
    vector = query_vector(query.dense, arguments, table)
    near = f"SELECT {cosine(query.dense, table, vector)} FROM {table.qualified} m WHERE m.id = l.id LIMIT 1"
    return (
        f"""WITH {gate(query, arguments, table)},{NOTHING_DENSE},{lexical_leg(query, arguments, table, where)},
told AS (
  SELECT id, lexical_score, CASE WHEN lexical_rank IS NOT NULL AND (SELECT open FROM gate) THEN ({near}) END AS cosine
    FROM lexical l
)
SELECT (SELECT open FROM gate) AS open, coalesce(array_agg(id), '{{}}') AS ids,
       coalesce(array_agg(lexical_score), '{{}}') AS scores, coalesce(array_agg(cosine), '{{}}') AS cosines,
       coalesce((SELECT array_agg(query::text ORDER BY n) FROM weighted), '{{}}') AS words,
       coalesce((SELECT array_agg(idf ORDER BY n) FROM weighted), '{{}}') AS weights
  FROM told""",
        arguments.values,
    )


def together(query: RecallQuery, table: MemoryTable, meaning: FoundByMeaning, words: FoundByWords) -> Statement:
    """The fusion of both and the page of results; without the dense leg where it could not take part."""
    query = query if meaning.open and words.open else replace(query, dense=None)
    arguments = Arguments()
    where = conditions(query.filters, arguments, table)
    more = " UNION ALL SELECT id, NULL, NULL, NULL, cosine FROM given WHERE (SELECT open FROM gate)"
    parts = [
        gate(query, arguments, table),
        _dense(meaning, arguments),
        _lexical(query, arguments, table, words),
        pooled(query, arguments, table, "f.dense_score", more=more, still=where),
        fused(query.fusion, arguments, sort_by=query.sort_by, lexical_is_final=False, timed=query.period is not None),
    ]
    return f"WITH {','.join(parts)}{page(table, query.limit, query.offset)}", arguments.values


def _dense(found: FoundByMeaning, arguments: Arguments) -> str:
    ids, scores = arguments.add(found.ids, "bigint[]"), arguments.add(found.scores, "float8[]")
    return f"""
dense AS MATERIALIZED (
  SELECT id, dense_rank, dense_score FROM unnest({ids}, {scores}) WITH ORDINALITY AS d(id, dense_score, dense_rank)
   WHERE (SELECT open FROM gate)
)"""


def _lexical(query: RecallQuery, arguments: Arguments, table: MemoryTable, found: FoundByWords) -> str:
    """The leg's CTEs; only what the dense leg found besides is left to score."""
    assert query.statistics is not None  # noqa: S101  (see splits)
    rows = arguments.add(float(query.statistics.rows), "float8")
    mean = arguments.add(max(query.statistics.mean_length, 1.0), "float8")
    words, weights = arguments.add(found.words, "text[]"), arguments.add(found.weights, "float8[]")
    ids, scores = arguments.add(found.ids, "bigint[]"), arguments.add(found.scores, "float8[]")
    cosines = arguments.add(found.cosines, "float8[]")
    return f"""
weighted AS MATERIALIZED (SELECT query::tsquery AS query, idf FROM unnest({words}, {weights}) AS w(query, idf)),
given AS MATERIALIZED (
  SELECT id, lexical_score, cosine FROM unnest({ids}, {scores}, {cosines}) AS g(id, lexical_score, cosine)
),
{scored(table, mean, "SELECT id FROM dense EXCEPT SELECT id FROM given")}
   UNION ALL SELECT id, lexical_score FROM given
),
{placed(query.depth, rows)}"""
