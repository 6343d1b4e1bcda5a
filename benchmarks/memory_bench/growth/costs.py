"""How costs grow with the number of rows: power laws through measured points, and tables divided into partitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, log
from typing import Any

from memory_bench.latency.conditions import COLD, WARM
from memory_bench.latency.designs import OURS

_LEAST_POINTS = 2


@dataclass(frozen=True, slots=True)
class Cost:
    """One cost of a table at several numbers of rows: its name, its unit, and its values by number of rows."""

    name: str
    unit: str
    values: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """A cost of `factor * rows ** exponent`.

    An exponent of 1 means that twice the rows cost twice as much, and one of 0 that they cost the same.
    """

    factor: float
    exponent: float

    def at(self, rows: float) -> float:
        """Return the cost for a table of `rows` rows, in the unit of the cost."""
        return self.factor * exp(self.exponent * log(rows))


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes and times of a table of `rows` rows that is divided into `partitions` of equal size.

    `gib` is the size on disk of table and indexes, `index_gib` that of the HNSW indexes alone, which belongs into
    memory. `build_hours` is the time of building all indexes one after another on the processors of the measurement,
    `recall_ms` the 95th percentile of recalls that read one partition, with warm caches.
    """

    rows: int
    partitions: int
    gib: float
    index_gib: float
    build_hours: float
    recall_ms: float


def costs(latency: Mapping[str, Any]) -> list[Cost]:
    """Return the costs of our design by number of rows, from the results of the latency benchmark as JSON.

    Raises:
        KeyError: the results are those of a former version of the benchmark.
    """
    sizes = {size["rows"]: size for size in latency["sizes"]}

    def arm(size: Mapping[str, Any], condition: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = next(
            one for one in size["arms"] if (one["arm"], one["condition"]) == (OURS, condition)
        )
        return found

    return [
        Cost("recall, warm, p50", "ms", {rows: arm(one, WARM)["p50"] for rows, one in sizes.items()}),
        Cost("recall, warm, p95", "ms", {rows: arm(one, WARM)["p95"] for rows, one in sizes.items()}),
        Cost("recall, cold, p95", "ms", {rows: arm(one, COLD)["p95"] for rows, one in sizes.items()}),
        Cost(
            "read from disk by a cold recall",
            "MiB",
            {rows: arm(one, COLD)["disk_bytes"] / 2**20 for rows, one in sizes.items()},
        ),
        Cost("HNSW index", "GiB", {rows: one["index_gib"] for rows, one in sizes.items()}),
        Cost("table and all indexes", "GiB", {rows: sum(one["sizes"].values()) / 2**30 for rows, one in sizes.items()}),
        Cost("building the HNSW index", "min", {rows: one["build_minutes"] for rows, one in sizes.items()}),
    ]


def power_law(values: Mapping[int, float]) -> PowerLaw:
    """Return the power law through the values by least squares of their logarithms.

    Raises:
        ValueError: there are fewer than two values, or one that is not positive.
    """
    if len(values) < _LEAST_POINTS or min(values.values()) <= 0:
        raise ValueError("a power law needs the positive costs of two sizes at least; measure more --rows")
    across = [log(rows) for rows in values]
    up = [log(value) for value in values.values()]
    middle, height = sum(across) / len(across), sum(up) / len(up)
    exponent = sum((x - middle) * (y - height) for x, y in zip(across, up, strict=True)) / sum(
        (x - middle) ** 2 for x in across
    )
    return PowerLaw(exp(height - exponent * middle), exponent)


def plan(rows: int, partition_rows: int, laws: Mapping[str, PowerLaw]) -> Plan:
    """Compute what `rows` rows take in partitions of at most `partition_rows` rows; `laws` are by the costs' names."""
    partitions = ceil(rows / partition_rows)
    each = rows / partitions
    return Plan(
        rows,
        partitions,
        partitions * laws["table and all indexes"].at(each),
        partitions * laws["HNSW index"].at(each),
        partitions * laws["building the HNSW index"].at(each) / 60,
        laws["recall, warm, p95"].at(each),
    )


def plans(rows: Sequence[int], partition_rows: int, laws: Mapping[str, PowerLaw]) -> list[Plan]:
    """Compute the plans of several numbers of rows, each of them in partitions of at most `partition_rows` rows."""
    return [plan(one, partition_rows, laws) for one in rows]
