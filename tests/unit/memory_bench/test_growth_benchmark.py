"""Tests of how costs grow with the rows of a table, and of what more rows than were measured would take."""

import json
from pathlib import Path

import pytest
import typer

from memory_bench.growth.command import growth
from memory_bench.growth.costs import costs, plan, power_law


def latency_results(*sizes: int) -> dict[str, object]:
    """Return results of the latency benchmark in which every cost is known: linear, but a recall of the square root."""
    return {
        "sizes": [
            {
                "rows": rows,
                "arms": [
                    {"arm": arm, "condition": condition, "p50": rows**0.5, "p95": 2 * rows**0.5, "disk_bytes": 2**20}
                    for arm in ("plain", "ours")
                    for condition in ("cold", "warm")
                ],
                "sizes": {"heap": rows * 1024, "hnsw": rows * 1024},
                "index_gib": rows * 1024 / 2**30,
                "build_minutes": rows / 60_000,
            }
            for rows in sizes
        ]
    }


def test_a_power_law_is_found_in_values_that_follow_it() -> None:
    """The factor and the exponent of a power law are found again in its values."""
    law = power_law({rows: 3 * rows**0.4 for rows in (5_000, 100_000, 1_000_000)})
    assert law.factor == pytest.approx(3)
    assert law.exponent == pytest.approx(0.4)
    assert law.at(10_000_000) == pytest.approx(3 * 10_000_000**0.4)


@pytest.mark.parametrize("values", [{5_000: 1.0}, {5_000: 1.0, 100_000: 0.0}], ids=["one size", "a cost of nothing"])
def test_what_has_no_power_law_is_refused(values: dict[int, float]) -> None:
    """One size alone, or a cost that is not positive, is refused with what is to be done."""
    with pytest.raises(ValueError, match="measure more --rows"):
        power_law(values)


def test_partitions_multiply_what_is_stored_and_not_what_one_user_waits() -> None:
    """Ten partitions store and build ten times what one does, and a recall that reads one of them takes as long."""
    laws = {one.name: power_law(one.values) for one in costs(latency_results(5_000, 1_000_000))}
    one, ten = plan(1_000_000, 1_000_000, laws), plan(10_000_000, 1_000_000, laws)
    assert (one.partitions, ten.partitions) == (1, 10)
    assert ten.gib == pytest.approx(10 * one.gib) == pytest.approx(10 * 2_000_000 * 1024 / 2**30)
    assert ten.build_hours == pytest.approx(10 * one.build_hours)
    assert ten.recall_ms == pytest.approx(one.recall_ms) == pytest.approx(2_000)


def test_the_last_partition_is_not_smaller_than_the_others() -> None:
    """Rows that do not fill the last partition are spread evenly over all of them."""
    laws = {one.name: power_law(one.values) for one in costs(latency_results(5_000, 1_000_000))}
    planned = plan(1_500_000, 1_000_000, laws)
    assert planned.partitions == 2
    assert planned.recall_ms == pytest.approx(2 * 750_000**0.5)


def test_the_command_writes_tables_and_a_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command writes the table of growth, that of plans and a chart; its last line has every exponent."""
    measured = tmp_path / "latency.json"
    measured.write_text(json.dumps(latency_results(5_000, 100_000, 1_000_000)), encoding="utf-8")
    growth(measured, output=tmp_path / "out")
    exponents = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert exponents["recall, warm, p95"] == 0.5
    assert exponents["table and all indexes"] == 1.0
    written = (tmp_path / "out" / "growth.md").read_text(encoding="utf-8")
    assert "| recall, warm, p95 | ms | 141 | 632 | 2,000 | 0.50 |" in written
    assert "| 100,000,000 | 100 | 191 |" in written
    assert "<svg" in (tmp_path / "out" / "growth.svg").read_text(encoding="utf-8")


def test_results_of_a_former_version_are_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results without a condition are refused with the name of the file and the command that makes new ones."""
    measured = tmp_path / "latency.json"
    measured.write_text(json.dumps({"sizes": [{"rows": 5_000, "arms": [{"arm": "ours"}]}]}), encoding="utf-8")
    with pytest.raises(typer.Exit):
        growth(measured, output=tmp_path / "out")
    assert "memory_bench latency" in "".join(capsys.readouterr())
