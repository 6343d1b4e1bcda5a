"""Writes the report of the study, its figures as JSON, and a chart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memory_bench.index_study.designs import CANDIDATES, LEAST_RECALL, SMALLER, Kind
from memory_bench.index_study.exact import ExactShares
from memory_bench.index_study.quality import RANKINGS, SetQuality
from memory_bench.index_study.verdict import Measured, TableResult, Verdict, admissible, best, chosen, judge
from memory_bench.report import chart, machine, now, write_json
from memory_bench.studies.tables import Rows, write_report

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that was measured; `texts` is the number of texts that have a vector, and `busy` the load average.

    `exact` has what exact searches keep, of the tables' vectors and of others.
    """

    model: str
    texts: int
    tables: Sequence[TableResult]
    exact: Sequence[ExactShares]
    sets: Sequence[SetQuality]
    busy: float

    @property
    def verdicts(self) -> dict[tuple[int, int], dict[Kind, Verdict]]:
        """The verdict on each kind by dimensions and rows."""
        return judge(self.tables, self.sets)

    def figures(self) -> dict[str, object]:
        """Return the main figures: verdicts, what exact searches keep with the most candidates, and the best settings.

        Of the best setting of each kind that was measured, `recall` is recall@50; `size`, `p95_warm`, `p95_cold` and
        `bytes_cold` are shares of today's.
        """
        return {
            "verdicts": {f"{size[0]}d {size[1]}": found for size, found in self.verdicts.items()},
            "kept_by_exact_search": {
                f"{one.name} {one.dimensions}d {one.rows}": {
                    by: round(found[-1], 4) for by, found in one.shares.items()
                }
                for one in self.exact
            },
            **{_name(one): {kind: _beside(one, kind, self.sets) for kind in one.smaller} for one in self.measured},
        }

    @property
    def measured(self) -> list[TableResult]:
        """The tables on which indexes were built."""
        return [one for one in self.tables if one.measured]


def write(study: Study, directory: Path) -> None:
    """Write report, figures and chart into a directory."""
    kept = {
        "made_at": now(),
        "machine": {**machine(), "load_average": round(study.busy, 1)},
        "figures": study.figures(),
        "tables": [
            {
                "vectors": one.name,
                "dimensions": one.dimensions,
                "rows": one.rows,
                "settings": [_as_json(each) for each in one.measured],
            }
            for one in study.measured
        ],
    }
    write_json(directory / "summary.json", kept)
    _plot(study, directory / "index.svg")
    write_report(directory / "report.md", _opening(study), dict(_sections(study)))


def _opening(study: Study) -> Iterator[str]:
    yield "# A smaller vector index"
    yield (
        "HNSW over one bit a dimension, or over the first quarter of the dimensions, with candidates ordered anew by"
        " their halves, beside HNSW over halves: the rule is that of [ADR"
        " 30](../../../docs/adr/0030-a-smaller-vector-index.md), and `make bench-index` makes this report."
    )
    yield (
        f"Real vectors are those of {study.model}: {study.texts:,} texts, and rows that are made of their differences."
        " Warm times are of the session's processor, p50 / p95 in milliseconds; those by the clock, cold times and"
        f" builds are slower where the machine does other work (load average {study.busy:.1f} at the end). Made"
        f" {now()[:10]}."
    )
    yield (
        "An index finds no more than an exact search by the same expression. So a kind whose exact search keeps less"
        f" than {LEAST_RECALL} of the fifty nearest among the first {max(CANDIDATES)} candidates is rejected without an"
        " index."
    )
    yield "![What exact searches keep, and recall@50 against p95 of the dense leg, warm](index.svg)"


def _sections(study: Study) -> Iterator[tuple[str, Rows]]:
    yield "Verdicts", _verdict_rows(study)
    for one in study.measured:
        yield f"{_title(one)}: the best of each kind", _best_rows(one, study.sets)
    yield (
        "Recall@10 on the sets: today's, and the change with the first candidates by an exact search",
        _set_rows(study),
    )
    yield "Share of the fifty nearest among the first candidates, by an exact search", _exact_rows(study)
    for one in study.measured:
        yield f"{_title(one)}: every setting", _setting_rows(one, study.sets)


def _verdict_rows(study: Study) -> Rows:
    yield ["dimensions", "rows", *SMALLER]
    for (dimensions, rows), found in study.verdicts.items():
        yield [str(dimensions), f"{rows:,}", *(found[kind] for kind in SMALLER)]


def _best_rows(table: TableResult, sets: Sequence[SetQuality]) -> Rows:
    yield [
        "setting",
        "admissible",
        "MiB",
        "build s",
        "recall@50",
        "p50 / p95 ms",
        "by the clock",
        "buffers",
        "cold p95 ms",
        "cold MiB read",
    ]
    for one in chosen(table, sets):
        cold = ["", ""] if one.cold is None else [f"{one.cold.p95:.0f}", f"{one.cold.bytes_read / _MIB:.1f}"]
        yield [
            str(one.setting),
            "yes" if admissible(one, table.today, sets) else "no",
            f"{one.size_bytes / _MIB:.0f}",
            f"{one.build_seconds:.0f}",
            f"{one.warm.recall:.4f}",
            f"{one.warm.percentile(50):.1f} / {one.warm.percentile(95):.1f}",
            f"{one.warm.elapsed_percentile(50):.1f} / {one.warm.elapsed_percentile(95):.1f}",
            f"{one.warm.buffers:,.0f}",
            *cold,
        ]


def _setting_rows(table: TableResult, sets: Sequence[SetQuality]) -> Rows:
    yield ["setting", "admissible", "recall@50", "p50 / p95 ms", "by the clock", "buffers"]
    for one in table.measured:
        yield [
            str(one.setting),
            "yes" if admissible(one, table.today, sets) else "no",
            f"{one.warm.recall:.4f}",
            f"{one.warm.percentile(50):.1f} / {one.warm.percentile(95):.1f}",
            f"{one.warm.elapsed_percentile(50):.1f} / {one.warm.elapsed_percentile(95):.1f}",
            f"{one.warm.buffers:,.0f}",
        ]


def _set_rows(study: Study) -> Rows:
    yield ["set", "leg", "today", *(f"{kind}, {count}" for kind in SMALLER for count in CANDIDATES)]
    for one in study.sets:
        for ranking in RANKINGS:
            changes = (one.change(kind, count, ranking) for kind in SMALLER for count in CANDIDATES)
            yield [
                f"{one.name} ({one.questions})",
                ranking,
                f"{one.today[ranking]:.3f}",
                *map("{:+.3f}".format, changes),
            ]


def _exact_rows(study: Study) -> Rows:
    yield [
        "vectors",
        "dimensions",
        "rows",
        "local dimensionality",
        "by",
        *(f"first {count}" for count in CANDIDATES),
    ]
    for one in study.exact:
        for by, shares in one.shares.items():
            yield [
                one.name,
                str(one.dimensions),
                f"{one.rows:,}",
                f"{one.dimensionality:.1f}",
                by,
                *(f"{share:.4f}" for share in shares),
            ]


def _plot(study: Study, path: Path) -> None:
    panels = 1 + len(study.measured)
    with chart(path, columns=panels, size=(5.2 * panels, 4.0)) as drawn:
        first, *others = [drawn] if panels == 1 else drawn
        for one in study.exact:
            label = f"{one.name}, {one.dimensions}d, {one.rows:,} rows"
            first.plot(CANDIDATES, one.shares["signs"], marker="o", markersize=3, label=label)
        first.set(title="Exact search by signs", xlabel="candidates", ylabel="share of the fifty nearest", xscale="log")
        first.set_xticks(CANDIDATES, [str(one) for one in CANDIDATES])
        first.minorticks_off()
        for axes, table in zip(others, study.measured, strict=True):
            for kind in ("halves", *table.smaller):
                every = [one for one in table.measured if one.setting.design.kind == kind]
                p95 = [one.warm.percentile(95) for one in every]
                axes.plot(p95, [one.warm.recall for one in every], "o", label=kind, markersize=4)
            axes.set(title=_title(table), xlabel="p95 of the dense leg, warm, ms", ylabel="recall@50")
        for axes in (first, *others):
            axes.axhline(LEAST_RECALL, linestyle=":", color="grey")
            axes.grid(alpha=0.3)
            axes.legend(fontsize="small")


def _beside(table: TableResult, kind: Kind, sets: Sequence[SetQuality]) -> dict[str, object]:
    one, today = best(table, kind, sets), table.today
    assert one is not None  # noqa: S101  (asked only of a kind that was measured)
    found: dict[str, object] = {
        "setting": str(one.setting),
        "admissible": admissible(one, today, sets),
        "recall": round(one.warm.recall, 4),
        "size": round(one.size_bytes / today.size_bytes, 3),
        "p95_warm": round(one.warm.percentile(95) / today.warm.percentile(95), 3),
    }
    if one.cold is not None and today.cold is not None:
        found["p95_cold"] = round(one.cold.p95 / today.cold.p95, 3)
        found["bytes_cold"] = round(one.cold.bytes_read / (today.cold.bytes_read or 1), 3)
    return found


def _as_json(one: Measured) -> dict[str, object]:
    cold = {} if one.cold is None else {"p95_cold_ms": round(one.cold.p95, 1), "bytes_cold": round(one.cold.bytes_read)}
    return {
        "setting": str(one.setting),
        "bytes": one.size_bytes,
        "build_seconds": round(one.build_seconds, 1),
        "recall@50": round(one.warm.recall, 4),
        **{f"p{percent}_ms": round(one.warm.percentile(percent), 2) for percent in (50, 95)},
        **{f"elapsed_p{percent}_ms": round(one.warm.elapsed_percentile(percent), 2) for percent in (50, 95)},
        "buffers": round(one.warm.buffers),
        **cold,
    }


def _name(table: TableResult) -> str:
    return f"{table.name} {table.dimensions}d {table.rows}"


def _title(table: TableResult) -> str:
    return f"{table.name.capitalize()}, {table.dimensions} dimensions, {table.rows:,} rows"
