"""The demo over a fake cluster: its commands, their order, and the results that it records."""

import json
from collections.abc import Sequence
from io import StringIO

import pytest
from rich.console import Console

from devcluster.demo import scenario
from devcluster.demo.console import DemoConsole
from devcluster.demo.dataset import Dataset, LabelledQuery, Memory, Query
from devcluster.demo.environment import Completed, DemoError, Speed
from devcluster.demo.scenario import Record
from devcluster.demo.verdict import Counts, Outcome, Recall

DATASET = Dataset(
    "set",
    (Memory(id=1, content="the NAS is called bolt"), Memory(id=2, content="its password", is_sensitive=True)),
    (LabelledQuery(Query(query_id="q1", text="name of the storage box?", stratum="paraphrase", conv="c1"), (1,)),),
)
ROWS = {"rows": 2, "embedded": 1, "sensitive": 1, "sensitive_embedded": 0, "deleted": 0}


class FakeEnvironment:
    """A fake that answers every command as in a successful run."""

    driver: str | None = "node"

    def __init__(self) -> None:
        self.log: list[str] = []
        self.rows = dict(ROWS)

    def run(self, arguments: Sequence[str], stdin: str | None = None) -> Completed:  # noqa: ARG002 - the protocol's own
        self.log.append(" ".join(arguments[1:3]))
        answers: dict[str, object] = {
            "migrate": {"reason": "ExtensionMissing"},
            "import": {"imported": 2},
            "evaluate": {
                "recall@10": {"lexical": 0.5, "dense": 0.25, "hybrid": 0.75},
                "strata": {"q1": {"ndcg@10": {"lexical": 0.5, "hybrid": 1.0}}},
            },
            "recall": {"memories": [{"id": 1, "content": "the NAS is called bolt"}]},
            "backfill": {"documents": 100, "tokens": 12000, "seconds": 5.0},
        }
        return Completed(3 if arguments[1] == "migrate" else 0, json.dumps(answers[arguments[1]]), "")

    def sql(self, statement: str) -> str:  # noqa: ARG002 - the protocol's own
        self.log.append("sql")
        return json.dumps(self.rows)

    def create_index(self, console: DemoConsole) -> None:  # noqa: ARG002 - the protocol's own
        self.log.append("index")

    def backfill_speed(self) -> Speed | None:
        return Speed(rows=17.0, tokens=2280.0)


@pytest.fixture
def output() -> StringIO:
    return StringIO()


@pytest.fixture
def console(output: StringIO) -> DemoConsole:
    return DemoConsole(Console(file=output, width=160))


def test_memories_are_imported_before_the_index_is_made(console: DemoConsole) -> None:
    environment = FakeEnvironment()
    scenario.run(environment, console, DATASET, Record(Outcome(None, 0)))
    assert environment.log[:4] == ["migrate --json", "import -", "sql", "index"]


def test_the_record_contains_what_was_measured(console: DemoConsole) -> None:
    record = Record(Outcome("node", 0))
    scenario.run(FakeEnvironment(), console, DATASET, record)
    assert record.outcome == Outcome("node", 0, ready=True, counts=Counts(**ROWS), recall=Recall(0.5, 0.25, 0.75))


def test_the_backfill_is_compared_with_the_embedders_own_speed(console: DemoConsole, output: StringIO) -> None:
    scenario.run(FakeEnvironment(), console, DATASET, Record(Outcome(None, 0)))
    said = "backfill 17.0 rows/s, 2,280 tokens/s; embedder alone 20.0 documents/s, 2,400 tokens/s: 0.95"
    assert said in output.getvalue()


def test_missing_rows_end_the_demo_before_the_index(console: DemoConsole) -> None:
    environment = FakeEnvironment()
    environment.rows["rows"] = 1
    with pytest.raises(DemoError, match="2 memories, the database holds 1"):
        scenario.run(environment, console, DATASET, Record(Outcome(None, 0)))
    assert "index" not in environment.log


def test_results_from_before_a_failure_stay_in_the_record(console: DemoConsole) -> None:
    class FailingAtEvaluation(FakeEnvironment):
        def run(self, arguments: Sequence[str], stdin: str | None = None) -> Completed:
            if arguments[1] == "evaluate":
                return Completed(1, "", "the embedder is away")
            return super().run(arguments, stdin)

    record = Record(Outcome("node", 0))
    with pytest.raises(DemoError, match="the embedder is away"):
        scenario.run(FailingAtEvaluation(), console, DATASET, record)
    assert record.outcome.ready
    assert record.outcome.counts == Counts(**ROWS)
    assert record.outcome.recall is None
