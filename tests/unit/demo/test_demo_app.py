"""The demo as a program: the last line of stdout, the exit status, and where it chooses to run."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from devcluster.demo import app
from devcluster.demo.environment import DemoError
from devcluster.demo.verdict import Counts, Recall
from devcluster.errors import UnsupportedError

GOOD = {"ready": True, "counts": Counts(3, 2, 1, 0, 0), "recall": Recall(0.5, 0.4, 0.6)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "corpus.jsonl").write_text('{"id": 1, "content": "the NAS is called bolt"}\n')
    (tmp_path / "queries.jsonl").write_text('{"query_id": "q1", "text": "name of the storage box?"}\n')
    (tmp_path / "qrels.jsonl").write_text('{"query_id": "q1", "relevant_ids": [1]}\n')
    return tmp_path


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The outcome of the demo at each place; by default success."""
    plan: dict[str, Any] = {"cluster": GOOD, "local": GOOD, "visited": []}

    def visit(place: str, record: Any) -> None:
        plan["visited"].append(place)
        if isinstance(plan[place], BaseException):
            raise plan[place]
        record.update(**plan[place])

    monkeypatch.setattr(app, "run_on_cluster", lambda _narrator, _dataset, record, **_: visit("cluster", record))
    monkeypatch.setattr(app, "run_on_this_machine", lambda _narrator, _dataset, record: visit("local", record))
    return plan


def run(*arguments: str) -> Result:
    program = typer.Typer()
    program.command()(app.demo)
    return CliRunner().invoke(program, list(arguments))


def last_line(result: Result) -> dict[str, Any]:
    return dict(json.loads(result.stdout.strip().splitlines()[-1]))


def test_a_good_run_ends_with_status_0_and_one_json_object(data: Path, places: dict[str, Any]) -> None:
    result = run("--data", str(data))
    assert result.exit_code == 0, result.output
    assert last_line(result)["recall@10"] == {"lexical": 0.5, "dense": 0.4, "hybrid": 0.6}
    assert result.stdout.count("\n") == 1, "stdout belongs to the object alone"


def test_a_failed_check_ends_with_status_1_and_is_reported(data: Path, places: dict[str, Any]) -> None:
    places["cluster"] = {**GOOD, "counts": Counts(3, 1, 1, 0, 0)}
    result = run("--data", str(data))
    assert result.exit_code == 1
    assert "1 rows have a vector, 2 should" in result.stderr


def test_a_failure_ends_with_status_1_and_reports_the_results_so_far(data: Path, places: dict[str, Any]) -> None:
    places["cluster"] = DemoError("the operator is away")
    result = run("--data", str(data))
    assert result.exit_code == 1
    assert "the operator is away" in result.stderr
    assert last_line(result)["ready"] is False


def test_without_a_usable_driver_the_demo_runs_locally_and_reports_it(data: Path, places: dict[str, Any]) -> None:
    places["cluster"] = UnsupportedError("no root and no Docker")
    result = run("--data", str(data))
    assert result.exit_code == 0
    assert places["visited"] == ["cluster", "local"]
    assert "no root and no Docker" in result.stderr


def test_a_requested_driver_is_not_replaced(data: Path, places: dict[str, Any]) -> None:
    places["cluster"] = UnsupportedError("no Docker")
    assert run("--data", str(data), "--driver", "kind").exit_code == 1
    assert places["visited"] == ["cluster"]


def test_the_demo_runs_locally_on_request(data: Path, places: dict[str, Any]) -> None:
    assert run("--data", str(data), "--local").exit_code == 0
    assert places["visited"] == ["local"]


def test_an_invalid_labelled_set_starts_nothing(data: Path, places: dict[str, Any]) -> None:
    (data / "qrels.jsonl").write_text('{"query_id": "q1", "relevant_ids": [7]}\n')
    result = run("--data", str(data))
    assert result.exit_code == 2
    assert "qrels.jsonl:1" in result.stderr
    assert places["visited"] == []


def test_an_interruption_ends_with_status_130(data: Path, places: dict[str, Any]) -> None:
    places["cluster"] = KeyboardInterrupt()
    result = run("--data", str(data))
    assert result.exit_code == 130
    assert last_line(result)["ready"] is False
