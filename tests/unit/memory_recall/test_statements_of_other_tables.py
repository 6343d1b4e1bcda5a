"""No statement of a recall spells a column of the user's table by our name for it, or names a language."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import product
from typing import Any

import pytest

from memory_recall.hnsw.search_effort import SearchedGraph
from memory_recall.schema.columns.names import ColumnNames
from memory_recall.schema.columns.used import USED_COLUMNS
from memory_recall.schema.table import MemoryTable
from memory_recall.search.fusion import SortBy
from memory_recall.search.period import Period
from memory_recall.search.query import EmbeddedQuery, FurtherWords, Mode, RecallQuery
from memory_recall.search.sql.bm25 import CollectionStatistics
from memory_recall.search.sql.collection_statistics import sampling_statement
from memory_recall.search.sql.filters import Filters
from memory_recall.search.sql.parallel import (
    DenseRows,
    LexicalRows,
    dense_statement,
    fusion_statement,
    is_worth_splitting,
    lexical_statement,
)
from memory_recall.search.sql.plan import DenseLeg, RecallPlan
from memory_recall.search.sql.statement import present_statement, statement
from memory_recall.search.sql.visibility import EVERYONE, Everyone

NAMES = {used.name: f"Odd {number}" for number, used in enumerate(USED_COLUMNS)}
ODD = MemoryTable(
    "public",
    "notes",
    {NAMES[used.name]: used.types[0] for used in USED_COLUMNS} | {"memory_embedding": "halfvec", "content": "text"},
    "public",
    8,
    names=ColumnNames.parse({**NAMES, "embedding": "memory_embedding"}),
    quoted_names={name: f'"{name}"' for name in NAMES.values()},
    text_search_configuration='"o\'clock".words',
)
OUR_CATALOG = {used.name: used.types[0] for used in USED_COLUMNS} | {"id": "integer", "embedding": "halfvec"}
TABLES = {
    "our names": MemoryTable("public", "memories", OUR_CATALOG, "public", 8, text_search_configuration="english"),
    "odd names": ODD,
    "text key": replace(ODD, catalog=ODD.catalog | {NAMES["id"]: "text"}),
    "uuid key": replace(ODD, catalog=ODD.catalog | {NAMES["id"]: "uuid"}),
    "partitioned by user": replace(ODD, kind="p", partition_key=(NAMES["user_id"],)),
}
ANA = "ana"
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ALL_FILTERS = Filters(category="a", tags=("b",), since=NOON, until=NOON)
STATISTICS = (None, CollectionStatistics(500, 10.0, 80.0), CollectionStatistics(300_000, 10.0, 80.0))
# What the last SELECT gives out, and the models' table in the CTE `gate`, which has the alias m as well.
_OURS = re.compile(r"AS \w+|\(SELECT m\.id, .* FROM [^)]*\.\"memory_index_state\"[^)]*\)")
_ROW = re.compile(rf"\bm\.({'|'.join(NAMES)})\b|\b[no]\.({'|'.join(name for name in NAMES if name != 'id')})\b")
# These are columns of no CTE of ours either.
_ANYWHERE = re.compile(r"\b(content|is_sensitive|deleted_at|search_vector|user_id|category|tags|\w+ed_at|embedding)\b")


def plans(table: MemoryTable) -> Iterator[RecallPlan]:
    """One plan of each kind, plainly and with everything that can be added to it."""
    dense = DenseLeg(EmbeddedQuery([1.0] * 8, "tiny", "d" * 64), hnsw=SearchedGraph(300_000.0, 24, 128))
    more: dict[str, Any] = {
        "period": Period(NOON, NOON.replace(day=2)), "further": FurtherWords("pond", 0.3), "superseding": True,
        "concept_graph": True, "own_columns": True,
    }  # fmt: skip
    modes: tuple[Mode, ...] = ("hybrid", "dense", "lexical")
    orders = (SortBy.RELEVANCE, SortBy.RECENCY)
    for owner, mode, sort_by, text in product((EVERYONE, Everyone(reader=ANA), ANA), modes, orders, ("a", "")):
        for statistics, leg, filters in product(STATISTICS, (dense, None), (Filters(), ALL_FILTERS)):
            query = RecallQuery(
                text, user_id=owner, filters=filters, mode=mode, sort_by=sort_by, distinct=filters.selective
            )
            added = more if filters.selective else {}
            yield RecallPlan(query, table, dense=leg, statistics=statistics, has_state=True, **added)


@cache
def statements(name: str) -> frozenset[str]:
    """Every kind of statement that recalls send for one of the tables."""
    table = TABLES[name]
    made = {sampling_statement(table, 10.0)}
    key = 1 if table.key.is_integer else "a"
    found = (
        DenseRows(open=True, ids=[key], scores=[0.5]),
        LexicalRows(open=True, ids=[key], scores=[1.0], cosines=[0.5], terms=["'a'"], weights=[1.0], own=[True]),
    )
    for plan in plans(table):
        made.add(statement(plan)[0])
        made.add(present_statement(plan, [{"id": key, "rank": 0.5}])[0])
        if is_worth_splitting(plan):
            made |= {dense_statement(plan)[0], lexical_statement(plan)[0], fusion_statement(plan, *found)[0]}
    return frozenset(made)


@pytest.mark.parametrize("name", ["odd names", "text key", "uuid key", "partitioned by user"])
def test_no_statement_has_a_column_by_our_name_if_the_table_has_another_one(name: str) -> None:
    """The column `content` of these tables is not the one that is searched, and is in the caller's own rows alone."""
    made = statements(name)
    kinds = (
        "AS weights", "ORDER BY dense_rank), ", "given AS", "graph AS", "successors AS", "own_0", "broadened AS",
        "copies AS", "listed AS", "generate_series(", f"attname = '{NAMES['search_vector']}'",
    )  # fmt: skip
    assert [kind for kind in kinds if not any(kind in one for one in made)] == []
    for one in made:
        sql = _OURS.sub("", one).replace('m."content"', "")
        assert _ROW.findall(sql) + _ANYWHERE.findall(sql) == [], one


@pytest.mark.finding("database F4")
def test_every_query_is_parsed_by_the_tables_own_configuration() -> None:
    made = "".join(statements("odd names"))
    calls = set(re.findall(r"(\w+_ts\w+)\(([^$()]*), \$", made))
    assert calls == {(function, "'\"o''clock\".words'::regconfig") for function in ("to_tsvector", "plainto_tsquery")}


@pytest.mark.parametrize(("name", "bound"), [("odd names", "bigint"), ("uuid key", "uuid"), ("text key", "text")])
def test_ids_are_bound_as_our_own_tables_hold_them(name: str, bound: str) -> None:
    made = "".join(statements(name))
    kinds = re.findall(r"\bid::(\w+) AS successor|NULL::(\w+) AS id\b|unnest\(\$\d+::(\w+)\[\]", made)
    assert {kind for found in kinds for kind in found if kind} - {"text" if bound != "text" else ""} == {bound}


def test_a_table_with_our_own_names_has_statements_without_quotes_casts_or_cases() -> None:
    """Whoever has the memory API's table pays nothing for the others."""
    made = "".join(statements("our names"))
    assert "to_tsvector('english'::regconfig, $" in made
    assert "(SELECT count(*) FROM generate_series(m.id, m.id)) IS NOT NULL" in made
    assert (
        re.findall(
            r"m\.\"(?!expanded_keywords|user_id|is_sensitive|deleted_at)\w*|m\.id::|pg_input_is_valid|hashtext", made
        )
        == []
    )
