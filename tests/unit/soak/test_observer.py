"""What the observer counts of recalls and of texts in requests."""

import asyncio
import json
import time
from typing import Any

import pytest

from tests.soak import users
from tests.soak.ledger import Recall, State
from tests.soak.stores import NAMED, PARTED, PLAIN, STORES
from tests.soak.users import Observer

MARKER = "zq00000000000001"


def recall(
    store: str = PLAIN.name, *found: str, error: str | None = None, degraded: str | None = None, began: float = 10.0
) -> Recall:
    return Recall(store, "ada", began, began + 0.5, error, degraded, found)


def test_recalls_of_each_store_are_counted_as_answered_in_full_degraded_or_refused() -> None:
    observer = Observer()
    degraded = recall(PLAIN.name, MARKER, degraded="EmbedderFailed")
    for one in (recall(), recall(PLAIN.name, MARKER), degraded, recall(error="Timeout"), recall(NAMED.name)):
        observer.answered(one)
    summary = observer.summary()
    assert summary["recalls_of"] == {
        PLAIN.name: {"answered": 2, "degraded": 1, "refused": 1},
        NAMED.name: {"answered": 1, "degraded": 0, "refused": 0},
        PARTED.name: {"answered": 0, "degraded": 0, "refused": 0},
    }
    assert (summary["recalls"], summary["refused"]) == (5, 1)
    assert summary["found_of"] == {PLAIN.name: 1, NAMED.name: 0, PARTED.name: 0}
    assert summary["reasons"] == {f"{PLAIN.name}: EmbedderFailed": 1, f"{PLAIN.name}: Timeout": 1}


async def test_a_store_has_answered_again_only_if_it_did_so_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "_RETRY_SECONDS", 0.01)
    observer = Observer()
    waiting = asyncio.create_task(observer.until_answered_again(time.monotonic() + 0.2))
    await asyncio.sleep(0)
    later = time.monotonic() + 1
    for store in STORES:
        degraded = "EmbedderFailed" if store is PARTED else None
        observer.answered(recall(store.name, degraded=degraded, began=later))
    await waiting
    assert observer.answered_again == sorted([PLAIN.name, NAMED.name])


async def test_stores_and_vectors_have_one_time_to_be_there_again_and_it_is_said_how_long_each_took(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(users, "_AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(users, "_RETRY_SECONDS", 0.01)
    left: list[float] = []

    class Checked:
        async def until_embedded(self, deadline: float) -> None:
            left.append(deadline - time.monotonic())
            await asyncio.sleep(0.1)

    ended = asyncio.Event()
    given: Any = (Checked(), Observer(), [asyncio.create_task(ended.wait())], ended)
    await users.quieten(*given)
    assert left[0] <= 0
    said = json.loads(capsys.readouterr().out)["quiet"]
    assert (said["answered_s"] >= 0.2, said["embedded_s"] >= 0.1) == (True, True)


def test_an_answer_that_is_wrong_is_recorded_with_its_store_and_asker() -> None:
    observer = Observer()
    observer.ledgers[PLAIN.name].write("1", State(MARKER, "ada", sensitive=True, deleted=False, began=1, confirmed=2))
    observer.answered(recall(PLAIN.name, MARKER))
    assert observer.wrong == {"leak": [f"leak {MARKER} in {PLAIN.name}, asked by ada at 10.0"]}


def test_a_text_in_a_request_is_recorded_as_a_leak_with_how_long_its_row_had_been_sensitive() -> None:
    observer = Observer()
    ledger = observer.ledgers[NAMED.name]
    ledger.write("1", State(MARKER, "ada", sensitive=False, deleted=False, began=1, confirmed=2))
    observer.sighted(MARKER, 3.0)
    assert observer.wrong == {}
    ledger.write("1", State(MARKER, "ada", sensitive=True, deleted=False, began=3, confirmed=4))
    observer.sighted(MARKER, 7.0)
    assert observer.wrong == {"leak": [f"{MARKER} of {NAMED.name} to an embedder 3.0 s after it became sensitive"]}
    observer.sighted("zq000000000000ff", 7.0)
    summary = observer.summary()
    assert summary["texts_seen_in_requests"] == {PLAIN.name: 0, NAMED.name: 2, PARTED.name: 0}
    assert summary["written"] == {PLAIN.name: 0, NAMED.name: 2, PARTED.name: 0}


def test_a_text_whose_request_began_before_its_row_was_written_is_recorded_as_a_leak() -> None:
    observer = Observer()
    observer.ledgers[NAMED.name].write("1", State(MARKER, "ada", sensitive=True, deleted=False, began=1, confirmed=2))
    observer.sighted(MARKER, 0.5)
    assert observer.wrong == {"leak": [f"{MARKER} of {NAMED.name} to an embedder 0.0 s after it became sensitive"]}


async def test_an_error_while_texts_in_requests_are_judged_ends_that_task(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer()
    sightings: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
    sightings.put_nowait((MARKER, 1.0))
    monkeypatch.setattr(observer, "ledgers", {NAMED.name: None})
    with pytest.raises(AttributeError):
        await users.judge_texts(sightings, observer)


def test_a_recall_is_late_if_its_budget_is_over_without_the_time_for_which_its_process_stood_still_and_idle() -> None:
    observer = Observer()
    for stood_still, computed in ((1.0, 0.0), (0.1, 0.0), (1.0, 0.5), (0.1, 0.5)):
        asked = Recall(PLAIN.name, "ada", 10.0, 13.0, None, None, (), stood_still=stood_still, computed=computed)
        observer.answered(asked)
    took = [f"a recall in {PLAIN.name} took {seconds} s of its process" for seconds in ("2.90", "2.50", "3.00")]
    assert observer.wrong == {"late": took}
