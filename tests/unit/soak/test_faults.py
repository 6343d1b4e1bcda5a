"""Faults say what was exceeded only when it was, hit something or count as none, and leave nothing behind."""

import asyncio
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.soak import faults
from tests.soak.faults import Impossible, SoakCluster
from tests.soak.stores import STORES

NAMES = [store.name for store in STORES]


class Postgres:
    """Stands in for the Postgres cluster: its annotation, its connections by database, and what it was told."""

    namespace, name = "dbaas", "pg"

    def __init__(self) -> None:
        self.allowed = set(NAMES)
        self.connections: Callable[[str], int] = lambda _name: 0
        self.statements: list[str] = []

    def psql(self, statement: str) -> str:
        """Note the statement, and count the connections of the store whose database it names."""
        self.statements.append(statement)
        return str(next(self.connections(name) for name in NAMES if name.replace("-", "_") in statement))


class Scene:
    """Stands in for the writer of the annotation, which reads the whole list and writes it a little later."""

    def __init__(self, platform: Any, tenant: Any) -> None:
        self._postgres, self._name = platform.postgres, tenant.name

    def annotate(self, *, allowed: bool) -> None:
        """Read the list, and write it with this name or without it once others had time to write theirs."""
        before = set(self._postgres.allowed)
        for _ in range(200):
            if self._postgres.allowed != before:
                break
            faults.time.sleep(0.0005)
        self._postgres.allowed = before | {self._name} if allowed else before - {self._name}


class Clock:
    """A clock that goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    async def sleep(self, seconds: float) -> None:
        """Let the time pass, and the others run."""
        self.now += seconds
        await _REAL_SLEEP(0)


_REAL_SLEEP = asyncio.sleep


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock, real = Clock(), faults.time
    monkeypatch.setattr(faults, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=real.sleep))
    monkeypatch.setattr(asyncio, "sleep", clock.sleep)
    return clock


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(faults, "Scene", Scene)
    postgres = Postgres()
    tenants = {name: SimpleNamespace(name=name, database=name.replace("-", "_"), dsn="") for name in NAMES}
    platform = SimpleNamespace(postgres=postgres)
    made = SoakCluster(platform, postgres, tenants, SimpleNamespace(), lambda _tenant: None)  # type: ignore[arg-type]
    yield made
    assert made.taken == set()


async def tried(target: SoakCluster, fault: faults.Fault, seed: int) -> str:
    """Let a fault happen; return what it says, also if it is impossible."""
    try:
        return await fault(target, random.Random(seed), 20.0)
    except Impossible as error:
        return f"impossible: {error}"


async def test_withdrawals_that_overlap_are_of_different_stores_and_undo_nothing_of_each_other(
    clock: Clock, target: Any
) -> None:
    target.postgres.connections = lambda name: int(name in target.postgres.allowed)
    said = await asyncio.gather(*(tried(target, faults.withdraw_consent, seed) for seed in range(5)))
    assert sorted(said) == ["impossible: every consent is withdrawn already"] * 2 + sorted(NAMES)
    assert target.exceeded == []
    assert target.postgres.allowed == set(NAMES)
