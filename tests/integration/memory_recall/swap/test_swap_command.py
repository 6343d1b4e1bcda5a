"""`memory swap` as people and Jobs run it: real processes, their exit status, and what they print."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.memory_recall.fake_embedder import good_answer, vector_of
from tests.integration.memory_recall.swap.conftest import SwapBench
from tests.integration.memory_recall.workbench import DIMENSIONS
from tests.support.memory_command import run_memory


async def _begin(swaps: SwapBench, *arguments: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, **swaps.work.environment(MEMORY_BACKFILL_BATCH_SIZE="4")}
    command = (sys.executable, "-m", "memory_recall", "swap", *arguments, "--json")
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environment)


async def _run(swaps: SwapBench, *arguments: str) -> tuple[int | None, Any, str]:
    ended = await run_memory(["swap", *arguments, "--json"], swaps.work.environment(MEMORY_BACKFILL_BATCH_SIZE="4"))
    return ended.status, json.loads(ended.output) if ended.output else None, ended.errors.decode()


def _start(swaps: SwapBench, *more: str) -> tuple[str, ...]:
    return ("start", "--model", "small", "--url", swaps.following.url, *more)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Each text is the answer to itself."""
    lines = [{"query_id": str(n), "text": f"text {n}", "relevant_ids": [n + 1]} for n in range(40)]
    path = tmp_path / "queries.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


async def test_a_model_of_equal_recall_becomes_active_and_finish_drops_the_old_column(
    swaps: SwapBench, questions: Path
) -> None:
    code, plan, error = await _run(swaps, "plan", "--model", "small", "--url", swaps.following.url)
    assert code == 0, error
    assert (code, plan["rows"], plan["next"]["model"]) == (0, 40, "small")
    code, report, error = await _run(swaps, *_start(swaps, "--queries", str(questions)))
    assert code == 0, error
    assert (report["stage"], report["active"], report["gate"]["outcome"]) == ("flipped", "small", "passed")
    assert await swaps.problems() == []
    code, report, _ = await _run(swaps, "finish", "--yes")
    assert (code, report["stage"], report["standby"]["rows"]) == (0, "finished", 0)


async def test_a_plan_does_not_send_a_text_that_became_sensitive_after_it_was_read(swaps: SwapBench) -> None:
    """All texts of the sample are read first, and the requests before may take long."""
    swaps.following.hold_after(0)
    process = await _begin(swaps, "plan", "--model", "small", "--url", swaps.following.url)
    await asyncio.wait_for(swaps.following.held.wait(), 60)
    await swaps.work.execute("UPDATE memories SET is_sensitive = true")
    swaps.following.release()
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    assert len(swaps.following.received) == 16, "those of the request that was under way"
    assert json.loads(out)["rows"] == 40


async def test_a_bad_model_is_refused_with_exit_status_4_and_the_numbers(swaps: SwapBench, questions: Path) -> None:
    """It answers every text with a vector of another one."""
    swaps.following.behaviour = lambda texts: good_answer(
        [-vector_of("same", DIMENSIONS) + 0.1 * vector_of(os.urandom(8).hex(), DIMENSIONS) for _ in texts],
        swaps.following.digest,
    )
    code, _, error = await _run(swaps, *_start(swaps, "--queries", str(questions), "--max-drop", "0.05"))
    assert code == 4, error
    said = json.loads(error.strip().splitlines()[-1])
    assert (code, said["reason"]) == (4, "SwapRefused")
    assert "recall@10 over 40 questions: active 1.000" in said["message"]
    assert (await swaps.roles()).active.name == "tiny"
    code, report, _ = await _run(swaps, "abort", "--yes")
    assert (code, report["stage"], report["next"]) == (0, "aborted", None)


async def test_an_abort_that_comes_after_the_flip_is_refused_and_keeps_both_columns(swaps: SwapBench) -> None:
    """The operator may want a swap given up in the moment in which it flips."""
    await swaps.swap()
    code, _, error = await _run(swaps, "abort", "--yes")
    assert (code, json.loads(error.strip().splitlines()[-1])["reason"]) == (1, "NoSwap")
    assert (await swaps.roles()).active.name == "small"
    assert await swaps.work.value("SELECT count(embedding_standby) FROM memories") == 40


async def test_too_few_questions_end_with_exit_status_5_and_how_many_are_missing(
    swaps: SwapBench, tmp_path: Path
) -> None:
    """Each is answered by eight memories, which the models find by chance."""
    lines = [
        {"query_id": str(n), "text": f"text {n}", "relevant_ids": list(range(n + 1, n + 9))} for n in range(0, 32, 4)
    ]
    path = tmp_path / "queries.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    code, _, error = await _run(swaps, *_start(swaps, "--queries", str(path)))
    said = json.loads(error.strip().splitlines()[-1])
    assert (code, said["reason"]) == (5, "SwapUndecided")
    assert "more labelled questions would decide" in said["message"]
    assert (await swaps.roles()).active.name == "tiny"
    code, report, _ = await _run(swaps, "status")
    assert (code, report["stage"], report["gate"]["outcome"]) == (0, "refused", "undecided")
    assert report["gate"]["missing"] > 0


async def test_questions_that_the_active_model_cannot_answer_refuse_every_model(
    swaps: SwapBench, tmp_path: Path
) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_text('{"query_id": "q", "text": "text 1", "relevant_ids": [999]}')
    code, _, error = await _run(swaps, *_start(swaps, "--queries", str(path)))
    assert code == 4
    assert "measure nothing" in error


async def test_the_gate_measures_nothing_with_another_file_of_the_active_model(
    swaps: SwapBench, questions: Path
) -> None:
    """Its questions would be compared with vectors of another file, so the active model would seem bad."""
    swaps.work.embedder.digest = "sha256:other"
    code, _, error = await _run(swaps, *_start(swaps, "--queries", str(questions)))
    said = json.loads(error.strip().splitlines()[-1])
    assert (code, said["reason"]) == (4, "ModelMismatch")
    assert "sha256:other" in said["message"]
    assert (await swaps.roles()).active.name == "tiny"


async def test_judgements_may_be_in_a_separate_file(swaps: SwapBench, tmp_path: Path) -> None:
    queries, qrels = tmp_path / "queries.jsonl", tmp_path / "qrels.jsonl"
    queries.write_text('{"query_id": "q", "text": "text 1"}')
    qrels.write_text('{"query_id": "q", "relevant_ids": [2]}')
    code, report, error = await _run(swaps, *_start(swaps, "--queries", str(queries), "--qrels", str(qrels)))
    assert (code, report and report["gate"]["queries"]) == (0, 1), error


async def test_start_requires_a_gate_or_the_option_without_gate(swaps: SwapBench) -> None:
    code, _, error = await _run(swaps, *_start(swaps))
    assert code == 2
    assert "--without-gate" in error


async def test_rollback_makes_the_previous_model_active_again(swaps: SwapBench) -> None:
    await _run(swaps, *_start(swaps, "--without-gate"))
    code, report, error = await _run(swaps, "rollback", "--url", swaps.work.embedder.url)
    assert (code, report and report["active"]) == (0, "tiny"), error
    assert await swaps.problems() == []


@pytest.mark.parametrize("requests", [0, 2, 4])
async def test_a_killed_swap_process_continues_when_started_again(swaps: SwapBench, requests: int) -> None:
    swaps.following.hold_after(requests)
    process = await _begin(swaps, *_start(swaps, "--without-gate"))
    async with asyncio.timeout(60):
        await swaps.following.held.wait()
    process.send_signal(signal.SIGKILL)
    await process.wait()
    embedded = await swaps.work.value("SELECT array_agg(content) FROM memories WHERE embedding_standby IS NOT NULL")
    swaps.following.release()
    swaps.following.received.clear()
    code, report, error = await _run(swaps, *_start(swaps, "--without-gate"))
    assert (code, report and report["stage"]) == (0, "flipped"), error
    assert not set(embedded or ()) & set(swaps.following.received), "a finished row was embedded again"
    assert await swaps.problems() == []


@pytest.mark.parametrize("flip", ["--flip", "--no-flip"])
async def test_a_swap_that_is_told_to_end_before_it_is_done_does_not_exit_as_one_that_is_done(
    swaps: SwapBench, flip: str
) -> None:
    """A Job whose pod is evicted would count as complete, and a script would go on to the next command."""
    swaps.following.hold_after(0)
    process = await _begin(swaps, *_start(swaps, "--without-gate", flip))
    await asyncio.wait_for(swaps.following.held.wait(), 60)
    process.send_signal(signal.SIGTERM)
    swaps.following.release()
    out, error = await process.communicate()
    said = json.loads(error.decode().strip().splitlines()[-1])
    assert (process.returncode, said["reason"], out) == (1, "Interrupted", b"")
    assert f"was {await swaps.work.value('SELECT stage FROM memory_index_swaps')}." in said["message"]
    assert (await swaps.roles()).active.name == "tiny"
