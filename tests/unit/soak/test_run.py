"""A run waits for what it has begun, and says what was not completed."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devcluster.errors import DevclusterError
from tests.soak import __main__ as soak
from tests.soak import faults
from tests.soak.__main__ import Run
from tests.soak.pooler import Pooler
from tests.soak.processes import Pod
from tests.soak.stores import NAMED

_REAL_SLEEP = asyncio.sleep


class Clock:
    """A clock that goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    async def sleep(self, seconds: float) -> None:
        """Let the time pass, and the others run."""
        self.now += seconds
        await _REAL_SLEEP(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (soak, faults):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(asyncio, "sleep", clock.sleep)
    return clock


@pytest.fixture
def run(tmp_path: Path) -> Run:
    cluster: Any = SimpleNamespace(logs=tmp_path, kubectl=None)
    return Run(cluster, tmp_path, 60.0, 1)


class Tenant:
    """Stands in for a store with a backfill that has succeeded long ago, and gets another when `jobs` says so.

    `jobs` gives of each further Job whether it has succeeded, for how often rows were stored and the time since then;
    at every third look the API server does not answer.
    """

    name = "soak-parted"

    def __init__(self, clock: Clock, jobs: Callable[[int, float], list[bool]]) -> None:
        self._clock, self._jobs = clock, jobs
        self.cluster = self
        self.stored: list[str] = []
        self._stored_at, self._looks = 0.0, 0

    def as_owner(self, script: str, *, timeout: float) -> None:
        """Note the first id of the rows."""
        assert timeout == faults.COMMAND_SECONDS
        self.stored.append(script.split("SELECT ")[1].split(maxsplit=1)[0])
        self._stored_at = self._clock.now

    def kubectl(self, *_arguments: str, timeout: float) -> None:
        """Annotate the index."""
        assert timeout == faults.COMMAND_SECONDS

    def read(self, _path: str) -> Any:
        """Return the Jobs of the store."""
        self._looks += 1
        if self._looks % 3 == 0:
            raise DevclusterError("the API server does not answer")
        jobs = {"mi-backfill-1": True, "mi-swap-1": True}
        if self.stored:
            for number, done in enumerate(self._jobs(len(self.stored), self._clock.now - self._stored_at)):
                jobs[f"mi-backfill-{number + 2}"] = done
        return {"items": [_job(name, done=done) for name, done in jobs.items()]}


def _job(name: str, *, done: bool) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": name.split("-")[1]}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"completionTime": "2026-11-30T16:00:00Z"} if done else {},
    }


@pytest.mark.parametrize(
    ("jobs", "stored", "incomplete"),
    [
        (lambda _turn, since: [since > 100] if since > 10 else [], 1, []),
        (lambda turn, since: [since > 100] if turn == 3 else [], 3, []),
        (lambda _turn, _since: [], 3, ["a backfill of rows stored at once, 3 times"]),
        (lambda _turn, _since: [False], 1, ["the backfill of rows stored at once, within 600 s"]),
        (lambda _turn, since: [False, since > 300], 1, []),
    ],
    ids=["a Job", "rows that are gone twice", "no Job", "a Job without end", "a Job that failed"],
)
async def test_rows_are_stored_until_a_new_job_has_embedded_some(
    clock: Clock, run: Run, jobs: Callable[[int, float], list[bool]], stored: int, incomplete: list[str]
) -> None:
    tenant: Any = Tenant(clock, jobs)
    await run._import(tenant)
    assert tenant.stored == ["1000000", "1002000", "1004000"][:stored]
    assert run._incomplete == incomplete


@pytest.mark.parametrize("swapped", [True, False])
async def test_users_hear_of_the_end_of_a_swap_only_if_it_was_completed(clock: Clock, run: Run, swapped: bool) -> None:
    began = clock.now
    commands: list[bytes] = []

    def index() -> dict[str, Any]:
        models = {"active": "new"} if swapped and clock.now > began + 30 else {"active": "old", "next": "new"}
        ready = {"type": "Ready", "status": "True"}
        return {
            "metadata": {"generation": 1},
            "status": {"observedGeneration": 1, "model": models, "conditions": [ready]},
        }

    async def drained() -> None:
        pass

    tenant = SimpleNamespace(index=index, apply_index=lambda: None)
    users = SimpleNamespace(stdin=SimpleNamespace(write=commands.append, drain=drained))
    given: Any = (SimpleNamespace(tenants={NAMED.name: tenant}), users, {}, "new")
    await run._swap(*given)
    swapping, ended = f"swapping {NAMED.name}\n".encode(), f"swapped {NAMED.name}\n".encode()
    assert commands == ([swapping, ended] if swapped else [swapping])
    assert run._incomplete == ([] if swapped else ["the swap to new, within 600 s"])


PODS = [Pod("soak", name, name, "10.0.0.9", {"app.kubernetes.io/component": name}) for name in ("operator", "sync")]


async def interrupted(_seconds: float) -> None:
    """End what would pause."""
    raise InterruptedError


async def test_looks_for_texts_that_succeeded_are_counted_and_the_last_is_repeated_until_all_could_be_read(
    clock: Clock, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, printed = ["get --raw", "get --raw", "get --raw"], {"objects": "", "metrics": ""}

    def kubectl(*command: str, timeout: float) -> str:
        line = " ".join(command)
        if failing and failing[0] in line:
            failing.pop()
            raise DevclusterError(f"no answer within {timeout} s")
        return printed["metrics" if "metrics" in line else "objects"]

    monkeypatch.setattr(run._cluster, "kubectl", kubectl)
    target: Any = SimpleNamespace(of=lambda component: [pod for pod in PODS if pod.component == component])
    with monkeypatch.context() as pause:
        pause.setattr(asyncio, "sleep", interrupted)
        with pytest.raises(InterruptedError):
            await run._look(target)
    assert run._looks == {"objects": 1, "metrics of operator": 0, "metrics of embedder": 0, "metrics of sync": 0}
    printed["metrics"] = "zq00000000000001"
    await run._look_at_last(target)
    assert run._looks == {"objects": 3, "metrics of operator": 1, "metrics of embedder": 0, "metrics of sync": 1}
    assert (run._shown, run._incomplete) == ({"metrics of operator", "metrics of sync"}, [])
    failing += ["get --raw"] * 1000
    await run._look_at_last(target)
    assert run._incomplete == ["the last look for texts: no answer within 10.0 s"]


async def test_many_commands_that_wait_in_threads_keep_no_other_from_beginning(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(40, timeout=5)

    async def waiting() -> dict[str, Any]:
        await asyncio.gather(*(asyncio.to_thread(together.wait) for _ in range(40)))
        return {"faults": 0}

    monkeypatch.setattr(run, "_run", waiting)
    assert await run.run() == {"faults": 0}


@pytest.mark.parametrize("failures", [2, 1000])
async def test_a_pooler_that_does_not_start_is_tried_again_for_a_minute(
    clock: Clock, run: Run, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    began, left = clock.now, failures
    pooler: Any = object.__new__(Pooler)
    pooler.ended, pooler._process = 0, SimpleNamespace(poll=lambda: 1)

    def started() -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            raise DevclusterError("PgBouncer ended at its start")
        run._pooler = None
        return SimpleNamespace(poll=lambda: None)

    monkeypatch.setattr(pooler, "_started", started)
    run._pooler = pooler
    if failures == 2:
        await run._revive_pooler()
    else:
        with pytest.raises(DevclusterError, match="ended at its start"):
            await run._revive_pooler()
        assert clock.now > began + 60
    assert pooler.ended == (1 if failures == 2 else 0)


async def test_a_log_with_a_text_is_said_when_it_is_found(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reading = asyncio.create_task(run._read_logs())
    (tmp_path / "pod.log").write_text("the text zq00000000000001\n")
    async with asyncio.timeout(5):
        while not run.wrong:  # noqa: ASYNC110 - a thread reads
            await asyncio.sleep(0.02)
    assert capsys.readouterr().err.strip() == "WRONG logged: pod.log"
    run._over.set()
    await reading
