"""The fleet benchmark: what its figures say of invented rates and changes."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from memory_bench.fleet.load import SentenceEmbedder, ask_at_rate
from memory_bench.fleet.results import ChangeResult, RateResult, figures, sustained, table
from memory_bench.fleet.usage import Snapshot, Usage, between, binding, snapshot
from memory_recall import RecallQuery
from memory_recall.errors import DatabaseUnreachable
from tests.support.waiting import eventually

IDLE = Usage(10.0, {"primary": 2.0, "recall library": 1.0}, processors=0.4, disk=0.1)
FULL = replace(IDLE, processors=0.97)


def at(rate: float, **changes: Any) -> RateResult:
    """Return a rate at which all is well, but for the changes."""
    good = RateResult(rate, 1000, 1000, {}, {}, p50_ms=10.0, p95_ms=20.0, usage=IDLE, waiting=0)
    return replace(good, **changes)


def test_the_highest_rate_counts_below_which_all_were_sustained() -> None:
    """Where a rate fails, a higher one that happens to pass says nothing."""
    slow = at(50, p95_ms=81.0)
    assert sustained([at(10), at(25), slow, at(100)]) == at(25)
    assert sustained([at(10), at(25, answered=989), at(50)]) == at(10)
    assert sustained([at(10, answered=500)]) is None
    assert sustained([at(10), at(25, p95_ms=80.0, answered=990)]) == at(25, p95_ms=80.0, answered=990)


def test_what_binds_is_named_with_the_part_that_uses_most_of_it() -> None:
    assert binding(FULL) == "processors (primary most)"
    assert binding(replace(IDLE, disk=0.95)) == "the disk"
    assert binding(IDLE, waiting=3) == "connections to the databases"
    assert binding(IDLE) is None
    assert at(100, degraded={"EmbedderTimeout": 11}, waiting=9).binds == "the embedder, within a query's budget"
    assert at(100, degraded={"EmbedderTimeout": 10}).binds is None


def test_figures_name_what_binds_beyond_the_sustained_rate() -> None:
    """A recall's processor time is that of the sustained rate, where no recall is given up."""
    rates = [at(10), at(25, p95_ms=30.0), at(50, answered=400, usage=FULL)]
    changed = ChangeResult(500, (1.0, 2.0, 4.0, 3.0), replace(IDLE, seconds=5.0, disk=0.99))
    assert figures(changed, rates) == {
        "indexes": 500,
        "changed_at_once": 4,
        "edits_per_s": 0.8,
        "edit_p95_s": 4.0,
        "edits_bound_by": "the disk",
        "recalls_per_s": 25,
        "recall_p95_ms": 30.0,
        "recalls_bound_by": "processors (primary most)",
        "processor_ms_per_recall": {"primary": 2.0, "recall library": 1.0},
    }


def test_figures_without_a_sustained_rate_say_so() -> None:
    """Where no recall was answered by both legs, there is no time, and JSON has no number that is none."""
    said = figures(None, [at(10, answered=0, p50_ms=None, p95_ms=None, usage=FULL)])
    assert json.loads(json.dumps(said, allow_nan=False))["recall_p95_ms"] is None
    assert said["recalls_per_s"] == 0
    assert said["recalls_bound_by"] == "processors (primary most)"


def test_the_table_has_a_line_for_each_rate() -> None:
    lines = table([at(10), at(25, answered=900, usage=FULL)]).splitlines()
    assert lines[2:] == [
        "| 10 | 100.0% | 10.0 | 20.0 | 40% | 10% | 0 | nothing |",
        "| 25 | 90.0% | 10.0 | 20.0 | 97% | 10% | 0 | processors (primary most) |",
    ]


class Slow:
    """Answers every recall after a while; each third is refused, and each third by the lexical leg alone."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._asked = 0

    async def recall(self, _query: RecallQuery) -> Any:
        """Wait, and answer."""
        self._asked += 1
        number = self._asked % 3
        await asyncio.sleep(self._seconds)
        if number == 1:
            raise DatabaseUnreachable("the budget is spent")

        class Result:
            reason = "embedder_timeout" if number == 2 else None

        return Result


async def test_the_embedder_of_the_load_answers_a_text_that_is_no_question() -> None:
    """As a recall asks to find whether it answers again; else all recalls after one late query would be by words."""

    class Client:
        async def embed_query(self, _text: str) -> None:
            pass

    embedder = SentenceEmbedder(Client(), {"what?": [1.0, 0.0]})  # type: ignore[arg-type]
    assert await embedder.embed_query("ping 1") == await embedder.embed_query("what?") == [1.0, 0.0]


async def test_recalls_begin_at_their_time_though_others_are_under_way() -> None:
    """At 100 a second, recalls of .2 s pile up, and a time counts from when its recall was due."""
    answers = await ask_at_rate([Slow(0.2)], [RecallQuery("what?", user_id="ada")], rate=100, seconds=0.3)
    assert answers.under_way > 10
    assert (sum(answers.refused.values()), answers.degraded["embedder_timeout"], len(answers.milliseconds)) == (
        10,
        10,
        10,
    )
    assert all(milliseconds >= 199 for milliseconds in answers.milliseconds)


def test_the_disk_counts_that_was_busiest_between_the_moments_not_since_the_machine_started() -> None:
    first = Snapshot(0.0, {}, 0.0, {"old": 900.0, "new": 1.0})
    last = Snapshot(10.0, {}, 0.0, {"old": 901.0, "new": 10.5})
    assert between(first, last).disk == pytest.approx(0.95)


def test_processor_time_of_a_part_includes_what_it_started() -> None:
    """The child's child uses a processor, as a session of Postgres does."""
    work = "import time; end = time.process_time() + .3\nwhile time.process_time() < end: pass\n"
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}]); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE) as process:
        try:
            before = snapshot({"part": process.pid})
            used = eventually(
                lambda: between(before, snapshot({"part": process.pid})),
                lambda usage: usage.parts["part"] >= 0.25,
                what="the child's processor time is counted",
                seconds=60,
                poll=0.05,
            )
        finally:
            process.kill()
    assert 0 <= used.processors <= 1
