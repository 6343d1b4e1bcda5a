"""Running retrievers over a set: every form of retriever, scopes, and the report."""

import json
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from memory_bench.harness.dataset import Dataset, Memory, Query
from memory_bench.harness.retrievers import RetrieverAdapter, SqliteModeRetriever, make_retriever
from memory_bench.harness.runner import RunResult, run
from memory_bench.harness.set_report import compare_runs, markdown
from memory_bench.postgres import BenchmarkDatabase

DATASET = Dataset(
    "tiny",
    (
        Memory(1, "the zigbee dongle hangs", scope="a"),
        Memory(2, "zigbee channel", scope="b"),
        Memory(3, "tomatoes", scope="a"),
    ),
    (
        Query("q1", "zigbee dongle", "exact", "a", frozenset({1})),
        Query("q2", "channel of the zigbee", "paraphrase", None, frozenset({2})),
    ),
    0,
    "digest",
)


class CompleteRetriever:
    """A retriever with every method that the harness knows."""

    name = "complete"

    def __init__(self) -> None:
        self.corpus: Sequence[Memory] = ()
        self.scopes: list[str] = []
        self.closed = False

    def build_index(self, corpus: Sequence[Memory]) -> None:
        self.corpus = corpus

    def index_size_bytes(self) -> int:
        return 42

    def retrieve(self, query: str, k: int) -> list[int]:  # noqa: ARG002  (the protocol's)
        return [memory.id for memory in self.corpus][:k]

    def retrieve_in(self, query: str, k: int, scope: str) -> list[int]:  # noqa: ARG002  (the protocol's)
        self.scopes.append(scope)
        return [memory.id for memory in self.corpus if memory.scope == scope][:k]

    def close(self) -> None:
        self.closed = True


def test_a_plain_function_is_a_retriever() -> None:
    """It ranks the whole corpus, and the harness keeps the rows of the question's scope."""

    def backwards(query: str, k: int) -> list[int]:
        return [3, 2, 1][:k]

    result = run(RetrieverAdapter(backwards), DATASET)
    assert result.retriever == "backwards"
    assert result.answers[0].retrieved == (3, 1)
    assert result.answers[1].retrieved == (3, 2, 1)
    assert result.index_bytes is None


def test_every_optional_method_of_a_retriever_is_called() -> None:
    """The harness lets it index the corpus, reads its size, passes the scope on and closes it."""
    complete = CompleteRetriever()
    adapted = RetrieverAdapter(complete)
    result = run(adapted, DATASET)
    adapted.close()
    assert (result.index_bytes, complete.scopes, complete.closed) == (42, ["a"], True)
    assert result.answers[0].retrieved == (1, 3)


def test_the_sqlite_retriever_finds_rows_of_the_scope() -> None:
    result = run(RetrieverAdapter(SqliteModeRetriever()), DATASET)
    assert result.answers[0].retrieved == (1,)
    assert result.answers[1].retrieved[0] == 2
    assert result.means()["recall@10"] == 1.0
    assert (result.index_bytes or 0) > 0


def results() -> list[RunResult]:
    return [run(RetrieverAdapter(CompleteRetriever()), DATASET), run(RetrieverAdapter(SqliteModeRetriever()), DATASET)]


def test_the_report_has_tables_significance_and_manifest() -> None:
    """A reader finds what is needed to trust the run or to repeat it."""
    text = markdown(results(), baseline="complete", seed=0)
    for part in ("| complete |", "| sqlite-fts5 |", "## Against complete", "p (randomisation)", "(manifest.json)"):
        assert part in text


def test_results_by_question_contain_no_text() -> None:
    """They contain ids and scores, and no question or memory."""
    stored = json.dumps(results()[0].by_question())
    assert "zigbee" not in stored
    assert '"query_id": "q1"' in stored


def test_runs_over_different_questions_are_not_compared() -> None:
    """The comparison is paired by question."""
    first, second = results()
    fewer = RunResult(second.retriever, "tiny", second.answers[:1], 0.0, None)
    with pytest.raises(ValueError, match="same questions"):
        compare_runs(first, fewer, "recall@10", seed=0)


def test_the_retriever_of_the_contribution_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code block, saved under the name in the guide, is found by that name and ranks by shared words."""
    guide = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n( +class SharedWords.*?)```", guide, re.DOTALL)
    assert code
    (tmp_path / "shared_words.py").write_text(textwrap.dedent(code[1]), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    database = BenchmarkDatabase()
    result = run(make_retriever("shared_words:SharedWords", DATASET, database, None), DATASET)
    database.close()
    assert "--retriever shared_words:SharedWords" in guide
    assert [answer.retrieved for answer in result.answers] == [(1, 3), (1, 2, 3)]
