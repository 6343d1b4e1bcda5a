"""What the commands say of texts and settings that they were not made for."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memory_recall.cli import reading
from memory_recall.cli.app import create_app
from memory_recall.search.result import Evidence, RecalledMemory, RecallResult, Timings


class OneMemory:
    """A recall that finds one memory for any query."""

    def __init__(self, content: str, category: str) -> None:
        self._memory = RecalledMemory(
            id=1, content=content, category=category, tags=None, importance=0.5, is_sensitive=False, rank=0.5,
            owner=None, created_at=None, updated_at=None, evidence=Evidence(1, None, None, None),
        )  # fmt: skip

    async def recall(self, *_arguments: object, **_options: object) -> RecallResult:
        return RecallResult((self._memory,), "hybrid", None, Timings(0.0))


@pytest.mark.parametrize("text", ["[bold]", "[/bold]", "a\\[b]"])
def test_brackets_in_memories_and_categories_are_shown_as_they_are(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table's markup would swallow the one and fail on the other."""

    @asynccontextmanager
    async def opened(*_arguments: object, **_options: object) -> AsyncIterator[tuple[Any, None]]:
        yield OneMemory(content=text, category=text), None

    monkeypatch.setattr(reading, "opened_recall", opened)
    shown = CliRunner().invoke(create_app(), ["recall", "anything"])
    assert shown.exit_code == 0
    assert shown.stdout.count(text) == 2


def test_a_hosted_embedder_without_a_url_of_its_own_can_be_tuned_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It has an address by default, so that what is missing here is only the database."""
    questions = tmp_path / "questions.jsonl"
    lines = [json.dumps({"query_id": str(n), "text": f"question {n}", "relevant_ids": [n]}) for n in range(1, 31)]
    questions.write_text("\n".join(lines))
    monkeypatch.setenv("MEMORY_PROVIDER", "voyage")
    monkeypatch.setenv("MEMORY_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    monkeypatch.delenv("MEMORY_EMBEDDER_URL", raising=False)
    told = CliRunner().invoke(create_app(), ["tune", "--queries", str(questions), "--json"])
    assert json.loads(told.stderr)["reason"] == "DatabaseUnreachable"
