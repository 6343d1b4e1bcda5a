"""Running retrievers: any shape of retriever, scopes kept, and a report that says what was measured."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from memory_bench.harness.dataset import Dataset, Memory, Query
from memory_bench.harness.retrievers import RetrieverAdapter, SqliteModeRetriever, SqliteOrRetriever
from memory_bench.harness.runner import RunResult, run
from memory_bench.harness.set_report import compare_runs, markdown, plots

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


class Hooked:
    """A retriever with every hook."""

    name = "hooked"

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
    """It is asked for everything, and the harness keeps what lies in the question's scope."""

    def backwards(query: str, k: int) -> list[int]:
        return [3, 2, 1][:k]

    result = run(RetrieverAdapter(backwards), DATASET)
    assert result.retriever == "backwards"
    assert result.answers[0].retrieved == (3, 1)
    assert result.answers[1].retrieved == (3, 2, 1)
    assert result.index_bytes is None


def test_hooks_are_used_where_a_retriever_has_them() -> None:
    """Index, size, scope and end."""
    hooked = Hooked()
    adapted = RetrieverAdapter(hooked)
    result = run(adapted, DATASET)
    adapted.close()
    assert (result.index_bytes, hooked.scopes, hooked.closed) == (42, ["a"], True)
    assert result.answers[0].retrieved == (1, 3)


@pytest.mark.parametrize("retriever", [SqliteModeRetriever, SqliteOrRetriever])
def test_sqlite_finds_by_words_within_the_scope(retriever: type[SqliteModeRetriever] | type[SqliteOrRetriever]) -> None:
    """Both code paths."""
    result = run(RetrieverAdapter(retriever()), DATASET)
    assert result.answers[0].retrieved == (1,)
    assert result.answers[1].retrieved[0] == 2
    assert result.means()["recall@10"] == 1.0
    assert (result.index_bytes or 0) > 0


def results() -> list[RunResult]:
    return [run(RetrieverAdapter(Hooked()), DATASET), run(RetrieverAdapter(SqliteOrRetriever()), DATASET)]


def test_the_report_has_tables_significance_and_manifest(tmp_path: Path) -> None:
    """A reader finds what is needed to trust the run or to repeat it."""
    text = markdown(results(), baseline="hooked", seed=0)
    for part in ("| hooked |", "| sqlite-fts5-or |", "## Against hooked", "p (randomisation)", "(manifest.json)"):
        assert part in text
    for path in plots(results(), tmp_path):
        assert path.read_text(encoding="utf-8").lstrip().startswith("<?xml")


def test_results_survive_a_file_without_text() -> None:
    """Per-question results hold ids and scores, never a question or a memory."""
    stored = json.dumps(results()[0].by_question())
    assert "zigbee" not in stored
    assert '"query_id": "q1"' in stored


def test_runs_over_different_questions_are_not_compared() -> None:
    """A difference of means over different questions means nothing."""
    first, second = results()
    fewer = RunResult(second.retriever, "tiny", second.answers[:1], 0.0, None)
    with pytest.raises(ValueError, match="same questions"):
        compare_runs(first, fewer, "recall@10", seed=0)
