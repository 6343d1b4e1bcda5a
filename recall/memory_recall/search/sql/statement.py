"""The SQL statement of a recall: its legs, their fusion and the page of results in one round trip.

The CTE `gate` decides inside the same statement whether the dense leg may take part: the table's vectors must come from
the model that embedded the query, because vectors of two models cannot be compared. The CTE also sets the parameters of
the HNSW index scan for this transaction only, so that they apply behind a transaction pooler and on a replica, too.
Postgres evaluates `gate` before the scan begins, because the scan's one-time filter depends on it.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from memory_recall.embedding.canary import CANARY_PREFIX
from memory_recall.schema.columns.moments import moment
from memory_recall.schema.columns.owners import owner_text
from memory_recall.schema.models_sql import RECORDED_COLUMNS
from memory_recall.schema.rules.expected import COLUMN_MODEL
from memory_recall.schema.table import ACTIVE, MemoryTable, quoted
from memory_recall.search.result import EVIDENCE_FIELDS
from memory_recall.search.sql.bm25 import bm25_leg
from memory_recall.search.sql.distinct import copies
from memory_recall.search.sql.expressions import MOMENT_FIELDS, bounded, memory_columns
from memory_recall.search.sql.filters import Arguments, postgres_conditions
from memory_recall.search.sql.fusion import closeness, fused
from memory_recall.search.sql.graph import graph_leg
from memory_recall.search.sql.own_columns import own_select_list
from memory_recall.search.sql.plan import DenseLeg, RecallPlan
from memory_recall.search.sql.supersession import successors
from memory_recall.search.sql.ts_rank import ts_rank_leg
from memory_recall.search.sql.visibility import SearchedRows, postgres_rows, row_again

Statement = tuple[str, list[object]]
"""SQL text and its arguments."""

# Reading a table of some thousand rows whole takes 40 ms, vector by vector from where long values are kept, which the
# planner takes for free. So each row of a scan passes a test that costs nearly nothing and that the planner takes for
# expensive.
_INFLATE_SCAN_COST = "(SELECT count(*) FROM generate_series({0}, {0})) IS NOT NULL"
# pgvector's 20,000 and 1 end a filtered scan of a million rows after its first round, with .984 of the nearest found.
_FILTERED_SCAN = {"hnsw.max_scan_tuples": "50000", "hnsw.scan_mem_multiplier": "4"}
# Comparing 20,000 vectors of 1,024 dimensions takes 70 to 100 ms, and reading 200,000 rows for those that have a tag
# .3 s, where no index says which these are.
_MOST_ROWS_WITHOUT_INDEX = 20_000  # rows
_LARGEST_TABLE_WITHOUT_INDEX = 200_000  # rows of the table


def statement(plan: RecallPlan) -> Statement:
    """Return the recall statement of a plan. Its rows are the page, in order, each with the CTE `gate`'s columns."""
    arguments = Arguments()
    rows = searched_rows(plan, arguments)
    vector = "" if plan.dense is None else query_vector(plan.dense, arguments, plan.table)
    similarity = "coalesce(f.dense_score, NULL::float8)"
    if plan.dense is not None:
        cosine = cosine_similarity(plan.dense, plan.table, vector)
        similarity = f"coalesce(f.dense_score, CASE WHEN (SELECT open FROM gate) THEN {cosine} END)"
    parts = [
        gate(plan, arguments),
        dense_leg(plan, rows.searched, vector),
        lexical_leg(plan, arguments, rows),
        pool(plan, arguments, rows, similarity),
        ordered(plan, arguments, rows, vector),
    ]
    return f"WITH {','.join(parts)}{page(plan, rows)}", arguments.values


def searched_rows(plan: RecallPlan, arguments: Arguments) -> SearchedRows:
    """Return two conditions: for the rows that count in term statistics, and for the rows that the legs may find.

    Raises:
        InvalidInput: the table lacks the column of a filter or the column `user_id`.
    """
    rows = postgres_rows(plan.query.user_id, arguments, plan.table)
    return replace(rows, searched=f"{rows.searched}{postgres_conditions(plan.query.filters, arguments, plan.table)}")


def query_vector(dense: DenseLeg, arguments: Arguments, table: MemoryTable) -> str:
    """Return SQL for the query's vector, of type `halfvec`."""
    # An array needs no codec on the connection, which may belong to the API's own pool. As a subquery it is converted
    # once, where a generic plan would convert it for every row.
    return f"(SELECT ({arguments.add(dense.embedded.vector, 'real[]')})::{table.vector_type()})"


def gate(plan: RecallPlan, arguments: Arguments) -> str:
    """Return the CTE `gate` of one row.

    Its columns are the active model as JSON, `open`, whether the dense leg takes part, and `in_recovery`, whether the
    server is a replica.
    """
    role = plan.dense.column.role if plan.dense is not None else ACTIVE.role
    state, models = plan.table.own("memory_index_state"), plan.table.own("memory_index_models")
    known = (
        f"SELECT {RECORDED_COLUMNS} FROM {state} s JOIN {models} m ON m.id = s.{role}"
        if plan.has_state
        else "SELECT NULL::integer AS id, NULL::text AS name, NULL::text AS digest WHERE false"
    )
    may_take_part = "false" if plan.dense is None else _may_take_part(plan, plan.dense, arguments)
    return f"""gate AS MATERIALIZED (
  SELECT to_jsonb(k)::text AS active, {may_take_part} AS open, pg_is_in_recovery() AS in_recovery
    FROM (VALUES (1)) one LEFT JOIN ({known}) k ON true
)"""


def _may_take_part(plan: RecallPlan, dense: DenseLeg, arguments: Arguments) -> str:
    """Return SQL for whether the query's vector and the column's vectors come from the same file of the same model.

    Model name and file digest are each compared only if the query gives them. A digest cannot be compared with a
    recorded canary, so the name has to be given there. If the query gives either, the active model must also be the
    model that the SQL function `memory_index_column_model` returns for its column, because this function is right even
    in a transaction with an old snapshot.

    Evaluating the SQL also sets the parameters of the index scan.
    """
    partitions = len(plan.table.partitions) if dense.iterative_scan and not plan.selective else 0
    settings = {"hnsw.ef_search": str(dense.hnsw.ef_search(plan.depth, partitions=partitions))}
    if dense.iterative_scan:
        # Without it the index gives ef_search neighbours, of which the filters leave what they leave; without filters
        # the former versions of rows, which stay in the index until VACUUM, may be all of them.
        # Relaxed, because the strict order drops what comes late although it is near; the leg sorts anyway.
        settings["hnsw.iterative_scan"] = "relaxed_order"
        settings |= _FILTERED_SCAN if plan.selective else {}
    terms = [f"set_config('{name}', '{value}', true) IS NOT NULL" for name, value in settings.items()]
    model, digest = dense.embedded.model, dense.embedded.digest
    if model is not None:
        terms.append(f"k.name IS NOT DISTINCT FROM {arguments.add(model, 'text')}")
    if digest is not None:
        given = arguments.add(digest, "text")
        otherwise = "" if model is None else f" OR k.digest LIKE '{CANARY_PREFIX}%'"
        terms.append(f"coalesce(k.digest = {given}{otherwise}, true)")
    if dense.column is ACTIVE and (model, digest) != (None, None):
        terms.append(f"k.id IS NOT DISTINCT FROM {plan.table.own(COLUMN_MODEL)}()")
    return " AND ".join(terms)


def dense_leg(plan: RecallPlan, where: str, vector: str) -> str:
    """Return the CTE `dense(id, dense_rank, dense_score)`: the nearest rows, ranked from one, with their cosines.

    A filtered scan of the index ends after a number of rows, which may be before it comes to those that match, if they
    are far from the query. Where it yields fewer rows than it was to find, the rows that match are compared without
    the index: all of them, or some if they are very many.

    The cosine of a vector of length zero is NaN, and would make that of every score. A scan without the index meets
    such vectors where somebody has stored them past the rules.
    """
    if plan.dense is None:
        return no_dense_leg(plan.table)
    m, hnsw, key = plan.table.row("m"), plan.dense.hnsw, plan.table.key
    column = m.vector(plan.dense.column)
    distance = f"{column} {cosine_distance(plan.table)} {vector}"
    scanned = hnsw.filtered_depth(plan.depth) if plan.selective else plan.depth
    number = key.hashed(m.id) if key.name not in {"integer", "bigint"} else m.id  # no series is of smallint
    scan = where if plan.selective or not hnsw.exists else f"{where} AND {_INFLATE_SCAN_COST.format(number)}"
    matching = f"""
    SELECT {m.id} AS id, ({distance})::float8 AS distance
      FROM {plan.table.qualified} m
     WHERE (SELECT open FROM gate) AND {scan} AND {column} IS NOT NULL"""
    compared = ""
    if (
        plan.selective
        and hnsw.exists
        and hnsw.rows * max(len(plan.table.partitions), 1) <= _LARGEST_TABLE_WITHOUT_INDEX
    ):
        too_few = f"(SELECT count(*) FROM scanned) < {scanned}"
        compared = f" UNION ({matching} AND {too_few} LIMIT {_MOST_ROWS_WITHOUT_INDEX})"
    # `+ 0` keeps the planner from taking the scan's order, which is a relaxed one, for the sorted one.
    return f"""
dense AS MATERIALIZED (
  WITH scanned AS MATERIALIZED ({matching} ORDER BY {distance} LIMIT {scanned})
  SELECT id, row_number() OVER (ORDER BY distance + 0, id) AS dense_rank, 1 - distance AS dense_score
    FROM (SELECT id, distance FROM scanned{compared}) nearest
   WHERE distance < 'NaN'
   ORDER BY distance + 0, id LIMIT {plan.depth}
)"""


def no_dense_leg(table: MemoryTable) -> str:
    """Return the CTE `dense` of a leg that takes no part: it has no rows."""
    return f"""
dense AS (SELECT NULL::{table.key.stored} AS id, NULL::bigint AS dense_rank, NULL::float8 AS dense_score WHERE false)"""


def _no_lexical_leg(table: MemoryTable) -> str:
    columns = f"NULL::{table.key.stored} AS id, NULL::bigint AS lexical_rank, NULL::float8 AS lexical_score"
    return f"""
lexical AS (SELECT {columns} WHERE false),
reach AS (SELECT NULL::float8 AS max_lexical_score)"""


def lexical_leg(plan: RecallPlan, arguments: Arguments, rows: SearchedRows) -> str:
    """Return the CTEs of the lexical leg that end in `lexical(id, lexical_rank, lexical_score)` and `reach`."""
    if plan.query.mode == "dense" and plan.dense is not None:
        return _no_lexical_leg(plan.table)
    text, depth = plan.query.text, plan.depth
    if plan.lexical_is_final or plan.statistics is None:
        return ts_rank_leg(plan.table, arguments, rows.searched, query=text, sort_by=plan.query.sort_by, depth=depth)
    return bm25_leg(
        plan.table,
        arguments,
        rows,
        query=text,
        further=plan.further,
        depth=depth,
        rows_per_term=plan.rows_per_term,
        statistics=plan.statistics,
    )


def cosine_similarity(dense: DenseLeg, table: MemoryTable, vector: str) -> str:
    """Return SQL for the cosine similarity, -1 to 1, of row `m` and the query's vector; NULL without a vector."""
    return f"nullif(1 - ({table.row('m').vector(dense.column)} {cosine_distance(table)} {vector}), 'NaN')"


def cosine_distance(table: MemoryTable) -> str:
    """Return pgvector's operator of the cosine distance, which need not be in the search path."""
    return f"OPERATOR({quoted(table.vector_schema or 'public')}.<=>)"


def pool(
    plan: RecallPlan, arguments: Arguments, rows: SearchedRows, dense_score: str, *, extra_scores_sql: str = ""
) -> str:
    """Return the CTE `pool` of the rows that the legs found, with every score that can be computed.

    `extra_scores_sql` adds further scores of rows that a leg found. Rows that are not to be searched any more are left
    out.
    """
    m, created = plan.table.row("m"), moment(plan.table, "created_at")
    importance = f"{bounded(m.optional('importance'))} AS importance"
    timed = f", {closeness(plan.period, arguments, created)} AS closeness" if plan.period else ""
    successor, join, chains = "", "", ""
    if plan.superseding:
        chains, successor = f",{successors(plan.table, rows.user)}", ", s.successor, s.hops"
        join = " LEFT JOIN successors s ON s.id = f.id"
    return f"""
joined AS MATERIALIZED (
  SELECT id, max(lexical_rank) AS lexical_rank, max(lexical_score) AS lexical_score, max(dense_rank) AS dense_rank,
         max(dense_score) AS dense_score
    FROM (SELECT id, lexical_rank, lexical_score, NULL::bigint AS dense_rank, NULL::float8 AS dense_score FROM lexical
          UNION ALL
          SELECT id, NULL, NULL, dense_rank, dense_score FROM dense{extra_scores_sql}) legs
   GROUP BY id HAVING max(lexical_rank) IS NOT NULL OR max(dense_rank) IS NOT NULL
){chains},
pool AS MATERIALIZED (
  SELECT f.id, {importance}, f.lexical_rank, f.lexical_score, f.dense_rank,
         {dense_score} AS dense_score{timed}{successor}
    FROM joined f{join},
         {row_again(plan.table, "f.id", rows)}
)"""


def ordered(plan: RecallPlan, arguments: Arguments, rows: SearchedRows, vector: str) -> str:
    """Return the CTEs that end in `ordered(id, score, place)`, which the plan's fusion and the graph leg compute."""
    own_order = fused(
        plan.fusion,
        arguments,
        sort_by=plan.query.sort_by,
        lexical_is_final=plan.lexical_is_final,
        timed=plan.period is not None,
        superseding=plan.superseding,
        name="fused" if plan.has_graph_leg else "ordered",
    )
    if plan.dense is None or not plan.has_graph_leg:
        return own_order
    return f"{own_order},{graph_leg(plan, arguments, rows, cosine_similarity(plan.dense, plan.table, vector))}"


def page(plan: RecallPlan, rows: SearchedRows) -> str:
    """Return the final SELECT: the memories of the page in order, each with the columns of the CTE `gate`.

    For a `distinct` query, the CTE of the copies that the page leaves out stands before it.

    With `own_columns`, each also has the other columns of the table under their aliases. If no memory is found, it
    returns one row, in which only the columns of `gate` are set.
    """
    query = plan.query
    evidence = ", ".join(f"o.{name}" for name in EVIDENCE_FIELDS)
    if plan.has_graph_leg:
        evidence += ", o.graph_score"
    if plan.superseding:
        evidence += f", {plan.table.key.shown('o.successor')} AS superseded_by"
    leading, originals = "", ""
    if query.distinct:
        leading, originals = copies(plan, rows), " WHERE place NOT IN (SELECT place FROM copies)"
    return f"""{leading}
SELECT gate.active, gate.open, gate.in_recovery, p.*{_relevance_scale(plan)}
  FROM gate LEFT JOIN (
    SELECT {_shown_columns(plan)}, o.place, {evidence}
      FROM (SELECT * FROM ordered{originals} ORDER BY place LIMIT {query.limit} OFFSET {query.offset}) o,
           {row_again(plan.table, "o.id", rows)}) p ON true
 ORDER BY p.place"""


def _relevance_scale(plan: RecallPlan) -> str:
    """Return a select list of `SCALE_FIELDS` after a comma, or nothing if no relevance is computed."""
    if not plan.computes_relevance:
        return ""
    return """,
       (SELECT max(dense_score) FROM pool) AS most_dense, (SELECT max(lexical_score) FROM pool) AS most_lexical,
       (SELECT max_lexical_score FROM reach) AS max_lexical_score"""


def present_statement(plan: RecallPlan, found: Sequence[Mapping[str, Any]]) -> Statement:
    """Return the statement that reads the found memories again, with their scores, as far as the query may find them.

    Each row also has the column `in_recovery`. If no memory is left, the statement returns one row, in which only this
    column is set.

    Raises:
        InvalidInput: the table lacks the column of a filter or the column `user_id`.
    """
    arguments = Arguments()
    rows = searched_rows(plan, arguments)
    ids = arguments.add([row["id"] for row in found], f"{plan.table.key.stored}[]")
    scores = arguments.add([row["rank"] for row in found], "float8[]")
    return (
        f"""SELECT pg_is_in_recovery() AS in_recovery, p.*
  FROM (VALUES (1)) one LEFT JOIN (
    SELECT {_shown_columns(plan)}
      FROM unnest({ids}, {scores}) AS o(id, score),
           {row_again(plan.table, "o.id", rows)}
  ) p ON true""",
        arguments.values,
    )


def _shown_columns(plan: RecallPlan) -> str:
    """Return the select list of what an answer shows of the row `m`, whose score is in `o`."""
    table, m = plan.table, plan.table.row("m")
    columns = memory_columns(
        m.optional,
        sensitive=table.sensitive("m"),
        owner=owner_text(table, "m"),
        score="o.score",
        written={
            "id": table.key.shown(m.id),
            **{name: _label(table, name) for name in ("category", "tags")},
            **{name: moment(table, name) for name in MOMENT_FIELDS},
        },
    )
    return columns + own_select_list(table) if plan.own_columns else columns


def _label(table: MemoryTable, name: str) -> str:
    """Return SQL for a field that a sensitive memory shows, too; it shows NULL if the field is a part of the text."""
    value = table.row("m").optional(name)
    is_part = any(one.overlaps(part) for one in table.names.of(name) for part in table.names.of("content"))
    return f"CASE WHEN NOT {table.sensitive('m')} THEN {value} END" if is_part else value
