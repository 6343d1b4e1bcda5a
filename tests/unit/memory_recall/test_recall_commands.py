"""What the commands say of texts and settings that they were not made for."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from memory_recall.cli import quarantine, reading
from memory_recall.search.query import RecallQuery
from memory_recall.search.relevance import RelevanceBasis, RelevanceScale
from memory_recall.search.result import (
    WHY_DEGRADED,
    Degraded,
    Evidence,
    RecalledMemory,
    RecallResult,
    Timings,
)
from memory_recall.search.sql.visibility import EVERYONE, Everyone
from tests.support.invoked_command import invoke_memory


class OneMemory:
    """A recall that finds one memory for any query."""

    def __init__(self, content: str = "kettle", category: str = "facts", *, graph_score: float | None = None) -> None:
        self.asked: list[RecallQuery] = []
        self.answer: dict[str, Any] = {}
        self._memory = RecalledMemory(
            id=1, content=content, category=category, tags=None, importance=0.5, is_sensitive=False, rank=0.5,
            owner=None, created_at=None, updated_at=None, evidence=Evidence(1, None, None, None, graph_score),
        )  # fmt: skip

    async def recall(self, query: RecallQuery) -> RecallResult:
        self.asked.append(query)
        return replace(RecallResult((self._memory,), "hybrid", None, Timings(0.0)), **self.answer)


@pytest.fixture
def recalls(monkeypatch: pytest.MonkeyPatch) -> Callable[[OneMemory], None]:
    """Lets the command recall from a given memory."""

    def use(memory: OneMemory) -> None:
        @asynccontextmanager
        async def opened(*_arguments: object, **_options: object) -> AsyncIterator[tuple[Any, None]]:
            yield memory, None

        monkeypatch.setattr(reading, "opened_recall", opened)

    return use


def test_what_did_not_fit_into_the_tokens_is_counted(recalls: Callable[[OneMemory], None]) -> None:
    memory = OneMemory()
    memory.answer = {"left_out": 3}
    recalls(memory)
    command = ["recall", "x", "--everyone", "--max-tokens", "7"]
    shown = invoke_memory(command)
    assert "Left out: 3" in shown.stderr
    assert json.loads(invoke_memory([*command, "--json"]).stdout)["left_out"] == 3
    assert [one.max_tokens for one in memory.asked] == [7, 7]


@pytest.mark.parametrize("reason", Degraded)
def test_a_recall_by_words_alone_says_what_is_missing_and_what_to_do(
    reason: Degraded, recalls: Callable[[OneMemory], None]
) -> None:
    memory = OneMemory()
    memory.answer = {"reason": reason}
    recalls(memory)
    said = " ".join(invoke_memory(["recall", "x", "--everyone"]).stderr.split())
    assert f"Lexical only: {reason}: {WHY_DEGRADED[reason]}" in said


def test_without_a_vector_index_the_commands_are_named_that_make_it_and_missing_words() -> None:
    """Just after an adoption, neither vectors nor the words of a search column of ours are there."""
    for command in ("memory backfill", "words that are missing", "memory index build", "memory status"):
        assert command in WHY_DEGRADED[Degraded.INDEX_MISSING]


@pytest.mark.parametrize("text", ["[bold]", "[/bold]", "a\\[b]"])
def test_brackets_in_memories_and_categories_are_shown_as_they_are(
    text: str, recalls: Callable[[OneMemory], None]
) -> None:
    """The table's markup would swallow the one and fail on the other."""
    recalls(OneMemory(content=text, category=text))
    shown = invoke_memory(["recall", "anything", "--everyone"])
    assert shown.exit_code == 0
    assert shown.stdout.count(text) == 2


@pytest.mark.parametrize(("given", "asked"), [("likely", "likely"), ("0.5", 0.5), ("everything", "everything")])
def test_the_least_relevance_is_a_level_or_a_number(
    given: str, asked: str | float, recalls: Callable[[OneMemory], None]
) -> None:
    memory = OneMemory()
    recalls(memory)
    assert invoke_memory(["recall", "x", "--everyone", "--least-relevance", given]).exit_code == 0
    assert memory.asked[0].least_relevance == asked


@pytest.mark.parametrize("given", ["often", "1.5", "nan", ""])
def test_another_least_relevance_is_refused_with_what_there_is(given: str) -> None:
    refused = invoke_memory(["recall", "x", "--everyone", "--least-relevance", given])
    assert refused.exit_code == 1
    assert "everything, likely, certain" in refused.stderr


@pytest.mark.parametrize(
    ("basis", "said"),
    [
        (RelevanceBasis.MEANING_AND_WORDS, "Held back: 3"),
        (RelevanceBasis.WORDS, "Held back: 3"),
        (RelevanceBasis.NOT_FOUND_YET, "backfill and sync find it"),
        (RelevanceBasis.NO_WORD_SCORES, "ordered by score"),
    ],
)
def test_what_was_held_back_is_said_or_why_nothing_was(
    basis: RelevanceBasis, said: str, recalls: Callable[[OneMemory], None]
) -> None:
    """In words, and in the JSON; --explain says what relevance was measured by."""
    memory = OneMemory()
    held_back = 3 if basis.known else 0
    scale = RelevanceScale(0.61, 2.5, 5.0, 0.23) if basis is RelevanceBasis.MEANING_AND_WORDS else None
    memory.answer = {"relevance_basis": basis, "relevance_scale": scale, "held_back": held_back}
    recalls(memory)
    command = ["recall", "x", "--everyone", "--least-relevance", "likely", "--explain"]
    result = invoke_memory(command)
    assert said in " ".join(result.stderr.split())
    assert ("usual cosine 0.23" in result.stderr) is (scale is not None)
    printed = json.loads(invoke_memory([*command, "--json"]).stdout)
    assert (printed["held_back"], printed["relevance_basis"]) == (held_back, basis)
    assert ("relevance_scale" in printed) is (scale is not None)


def test_a_recall_that_asked_for_no_relevance_shows_nothing_of_it(recalls: Callable[[OneMemory], None]) -> None:
    recalls(OneMemory())
    printed = invoke_memory(["recall", "x", "--everyone", "--json"]).stdout
    assert "relevance" not in printed
    assert "held_back" not in printed


@pytest.mark.parametrize("graph_score", [None, 0.75])
def test_only_where_the_graph_reached_a_memory_does_explain_show_its_score(
    graph_score: float | None, recalls: Callable[[OneMemory], None]
) -> None:
    """As a column of the table and as a field of the JSON; without a graph nothing of it shows."""
    recalls(OneMemory(graph_score=graph_score))
    table = invoke_memory(["recall", "x", "--everyone", "--explain"]).stdout
    assert (graph_score is not None) is ("graph" in table) is ("0.75" in table)
    printed = invoke_memory(["recall", "x", "--everyone", "--explain", "--json"]).stdout
    (memory,) = json.loads(printed)["memories"]
    assert memory["evidence"].get("graph_score") == graph_score
    assert ("graph_score" in memory["evidence"]) is (graph_score is not None)


@pytest.mark.finding("L12")
@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (b"which PIN\n", "which PIN"),
        (b"two\nlines", "two\nlines"),
        (b"\xffbytes that are no UTF-8", "bytes that are no UTF-8"),
        ("é".encode() * 60_000, "é" * 50_000),
        (b"", ""),
    ],
    ids=["line", "lines", "bytes", "long", "empty"],
)
def test_a_query_can_come_from_standard_input(given: bytes, asked: str, recalls: Callable[[OneMemory], None]) -> None:
    """What is an argument shows in the list of processes and in the shell's history."""
    memory = OneMemory()
    recalls(memory)
    shown = invoke_memory(["recall", "-", "--user", "ana"], given=given)
    assert shown.exit_code == 0, shown.output
    assert [query.text for query in memory.asked] == [asked]


@pytest.mark.parametrize(
    ("options", "searched"),
    [
        (["--user", "ana"], "ana"),
        (["--everyone"], EVERYONE),
        (["--everyone", "--user", "ana"], Everyone(reader="ana")),
        ([], None),
        (["--user", ""], None),
    ],
    ids=str,
)
def test_everybody_s_memories_are_searched_only_when_the_command_line_says_so(
    options: list[str], searched: str | Everyone | None, recalls: Callable[[OneMemory], None]
) -> None:
    """A forgotten user is refused and does not stand for everybody."""
    memory = OneMemory()
    recalls(memory)
    shown = invoke_memory(["recall", "x", *options, "--json"])
    assert [query.user_id for query in memory.asked] == ([] if searched is None else [searched])
    assert ("InvalidInput" in shown.stderr) is (searched is None)


@pytest.mark.parametrize(
    ("options", "said"), [(("--limit", "5"), "--truncated"), (("--truncated", "--kube", "mem"), "--kube")]
)
def test_an_option_of_status_that_would_do_nothing_is_refused(options: tuple[str, ...], said: str) -> None:
    refused = invoke_memory(["status", *options])
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_the_list_of_failed_rows_shows_each_id_whole_however_narrow_the_terminal_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What memory quarantine retry is to be given was cut off: a UUID in a terminal of 80 columns."""
    ids: list[str | int] = ["17ea79a0-06cd-47c2-af25-e9b45d50fa56", "k" * 120, 7]

    async def failed(*_: object) -> list[dict[str, Any]]:
        at = "2026-11-30T23:05:45.883669+00:00"
        return [{"id": one, "attempts": 3, "error_class": "EmbedderRejected", "next_attempt": at} for one in ids]

    monkeypatch.setattr(quarantine, "_list", failed)
    shown = invoke_memory(["quarantine", "list"], {"COLUMNS": "80"})
    assert shown.exit_code == 0
    assert all(str(one) in shown.stdout for one in ids)


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(["adopt", '"Team"."Notes"'], {}), (["status"], {"MEMORY_TABLE": '"Team"."Notes"'})],
)
def test_a_quoted_name_of_a_table_is_refused_in_words_of_ours_alone(
    arguments: list[str], environment: dict[str, str]
) -> None:
    refused = invoke_memory(arguments, environment)
    assert refused.exit_code == 2
    assert "must be TABLE or SCHEMA.TABLE, without quotes" in " ".join(refused.stderr.split())
    assert "Value error" not in refused.stderr
