"""How long each leg of a recall statement took, as Postgres itself measures it.

The legs share one statement, so only the executor can tell them apart. The plan is read for the times of the legs'
CTEs and for nothing else; it is never shown, because it contains the query.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.search.jit import uncompiled

_LEGS = ("dense", "lexical")


async def measure_legs(
    connection: AnyConnection, sql: str, arguments: Sequence[object], *, compiles: bool
) -> dict[str, float]:
    """Run the statement again under EXPLAIN ANALYZE; milliseconds by leg, and those of planning and of everything."""
    with translated("measuring the recall"):
        async with uncompiled(connection, compiles=compiles):
            report = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *arguments)
    plan = json.loads(report)[0]
    times = {leg: _time_of(plan["Plan"], f"CTE {leg}") for leg in _LEGS}
    return {
        **{leg: milliseconds for leg, milliseconds in times.items() if milliseconds is not None},
        "planning": plan["Planning Time"],
        "execution": plan["Execution Time"],
    }


def _time_of(plan: dict[str, Any], name: str) -> float | None:
    return next((float(node["Actual Total Time"]) for node in _nodes(plan) if node.get("Subplan Name") == name), None)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
