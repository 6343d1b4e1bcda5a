"""Faults say what was exceeded only when it was, hit something or count as none, and leave nothing behind."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devcluster.errors import DevclusterError
from tests.soak import faults
from tests.soak.faults import Impossible, SoakCluster
from tests.soak.processes import Pod
from tests.soak.stores import PARTED, PLAIN, STORES

NAMES = [store.name for store in STORES]


class Postgres:
    """Stands in for the Postgres cluster: its annotation, its connections by database, and what it was told."""

    namespace, name = "dbaas", "pg"

    def __init__(self) -> None:
        self.allowed = set(NAMES)
        self.connections: Callable[[str], int | None] = lambda _name: 0
        self.statements: list[str] = []
        self.failing = 0

    def psql(self, statement: str, *, timeout: float) -> str:
        """Note the statement, and count the connections of the store whose database it names; None is no answer.

        As many of the next statements as `failing` says are carried out, but have no answer.
        """
        self.statements.append(statement)
        self.failing -= 1
        if self.failing >= 0:
            raise DevclusterError(f"no answer within {timeout} s")
        found = next(self.connections(name) for name in NAMES if name.replace("-", "_") in statement)
        if found is None:
            raise DevclusterError("no primary")
        return str(found)


class Processes:
    """Stands in for the processes of the cluster: the pods that run."""

    def __init__(self) -> None:
        self.running: Callable[[], list[Pod]] = list
        self.groups: list[Path] = []

    def of(self, _pod: Pod) -> list[int]:
        """Return no process, since all have ended meanwhile."""
        return []

    def memory_groups(self, _pod: Pod) -> list[Path]:
        """Return the directories that limit the memory of every pod."""
        return self.groups

    def component(self, _name: str) -> list[int]:
        """Return no process, since it is being started again."""
        return []

    def pods(self) -> list[Pod]:
        """Return the pods that run now."""
        return self.running()


class Scene:
    """Stands in for the writer of the annotation, which reads the whole list and writes it a little later."""

    def __init__(self, platform: Any, tenant: Any) -> None:
        self._postgres, self._name = platform.postgres, tenant.name

    def annotate(self, *, allowed: bool) -> None:
        """Read the list, and write it with this name or without it once others had time to write theirs."""
        before = set(self._postgres.allowed)
        for _ in range(40):
            if self._postgres.allowed != before:
                break
            time.sleep(0.0005)
        self._postgres.allowed = before | {self._name} if allowed else before - {self._name}


class Tenant:
    """Stands in for a store's namespace and database, and notes the commands of kubectl."""

    def __init__(self, name: str) -> None:
        self.name, self.database = name, name.replace("-", "_")
        self.dsn = f"postgresql://{self.database}:former@pg/{self.database}"
        self.password = "former"
        self.commands: list[str] = []

    def kubectl(self, *arguments: str, timeout: float) -> None:
        """Note the command."""
        assert timeout == faults.COMMAND_SECONDS
        self.commands.append(" ".join(arguments))

    def write_secret(self, dsn: str) -> None:
        """Note the connection string."""
        self.commands.append(dsn)


class Machine:
    """Stands in for the cluster's machine, and notes the commands that run in its network and those of kubectl.

    A command that contains `failing` fails after it was carried out; `packets` is what the rules of nft have counted.
    `workers` gives the phase of the sync worker of each store, an empty text if there is none, and None if the API
    server does not answer.
    """

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.failing, self.packets, self.volume = "", "0", "volume-7"
        self.workers: Callable[[], str | None] = lambda: ""

    def exec_in_network(self, command: list[str], *, input: str | None = None, timeout: float | None = None) -> str:  # noqa: A002
        """Note the command with its input."""
        return self._done(" ".join([*command, input or ""]), timeout)

    def kubectl(self, *arguments: str, input: str | None = None, timeout: float | None = None) -> str:  # noqa: A002
        """Note the command."""
        return self._done(" ".join(["kubectl", *arguments, input or ""]), timeout)

    def read(self, _path: str) -> dict[str, Any]:
        """Return the list of the pods of a namespace."""
        phase = self.workers()
        if phase is None:
            raise DevclusterError("the API server does not answer")
        labels = {"app.kubernetes.io/component": "sync"}
        return {"items": [{"metadata": {"labels": labels}, "status": {"phase": phase}}] if phase else []}

    def _done(self, command: str, timeout: float | None) -> str:
        self.commands.append(command)
        if self.failing and self.failing in command:
            raise DevclusterError(f"it did not end within {timeout} s")
        if "jsonpath" in command:
            return self.volume
        return f"counter packets {self.packets} bytes 7" if command.startswith("nft list table ip ") else ""


class Clock:
    """A clock that goes on when somebody sleeps, and what happens while somebody does."""

    def __init__(self) -> None:
        self.now = self.began = 1000.0
        self.meanwhile: list[Awaitable[None]] = []

    def is_in(self, spans: list[tuple[int, int]]) -> bool:
        """Return whether the seconds since its beginning are in one of these spans."""
        return any(first <= self.now - self.began < last for first, last in spans)

    async def sleep(self, seconds: float) -> None:
        """Let the time pass, and the others run."""
        self.now += seconds
        while self.meanwhile:
            await self.meanwhile.pop()
        await _REAL_SLEEP(0)


_REAL_SLEEP = asyncio.sleep


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(faults, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(asyncio, "sleep", clock.sleep)
    return clock


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(faults, "Scene", Scene)
    postgres = Postgres()
    tenants = {name: Tenant(name) for name in NAMES}
    monkeypatch.setattr(SoakCluster, "cluster", Machine())
    said: list[tuple[str, str]] = []
    platform, found = SimpleNamespace(postgres=postgres), lambda *what: said.append(what)
    given: Any = (platform, postgres, tenants, Processes(), lambda _tenant: None, found)
    made = SoakCluster(*given)
    yield made
    assert said == [("consent exceeded", what) for what in made.exceeded]
    assert made.taken == set()


async def tried(target: SoakCluster, fault: faults.Fault, seed: int) -> str:
    """Let a fault happen; return what it says, also if it is impossible."""
    try:
        return await fault(target, random.Random(seed), 20.0)  # noqa: S311 - the same every time
    except Impossible as error:
        return f"impossible: {error}"


async def overlapping(clock: Clock, target: SoakCluster, fault: faults.Fault) -> list[str]:
    """Let a fault happen, and the same one while it lasts; return what the second and the first say."""
    said: list[str] = []

    async def happen() -> None:
        said.append(await tried(target, fault, 1))

    clock.meanwhile.append(happen())
    await happen()
    return said


async def test_withdrawals_that_overlap_are_of_different_stores_and_undo_nothing_of_each_other(
    clock: Clock, target: Any
) -> None:
    target.postgres.connections = lambda name: int(name in target.postgres.allowed)
    said = await asyncio.gather(*(tried(target, faults.withdraw_consent, seed) for seed in range(5)))
    assert sorted(said) == ["impossible: every consent is withdrawn already"] * 2 + sorted(NAMES)
    assert target.exceeded == []
    assert target.postgres.allowed == set(NAMES)


@pytest.mark.parametrize(
    ("connected", "running", "exceeded"),
    [
        ([(0, 30)], [(0, 30)], ""),
        ([(0, 140)], [(0, 140)], ""),  # the operator was hit
        ([(0, 1000)], [(0, 1000)], "2 connections for {name} after 180 s"),
        ([(0, 30), (83, 88)], [(0, 30)], "2 connections for {name} after 85 s"),
        ([(0, 70), (90, 120)], [(0, 120)], ""),  # the operator was hit, and the database failed for a while
        ([(0, 65), (68, 78)], [(0, 65)], ""),  # at one look alone there was nothing
        ([(0, 30)], [(0, 1000)], "a worker of {name} after 180 s"),
    ],
)
async def test_a_store_is_stopped_within_three_minutes_of_a_withdrawal_and_nothing_comes_back(
    clock: Clock, target: Any, connected: list[tuple[int, int]], running: list[tuple[int, int]], exceeded: str
) -> None:
    target.postgres.connections = lambda _name: 2 * clock.is_in(connected)
    target.cluster.workers = lambda: "Running" if clock.is_in(running) else "Succeeded"
    name = await tried(target, faults.withdraw_consent, 1)
    assert target.exceeded == ([exceeded.format(name=name)] if exceeded else [])
    assert target.postgres.allowed == set(NAMES)
    assert clock.now - clock.began >= 85


@pytest.mark.parametrize("phase", ["Pending", "Unknown", None])
async def test_a_store_whose_worker_does_not_run_yet_or_cannot_be_looked_for_has_not_stopped(
    clock: Clock, target: Any, phase: str | None
) -> None:
    target.postgres.connections = lambda _name: 2 * clock.is_in([(90, 120)])
    target.cluster.workers = lambda: phase if clock.is_in([(0, 120)]) else ""
    assert await tried(target, faults.withdraw_consent, 1) in NAMES
    assert target.exceeded == []


@pytest.mark.parametrize("answers", [0, 2, 3])
async def test_a_withdrawal_has_shown_something_if_the_database_answered_three_times_after_the_store_was_stopped(
    clock: Clock, target: Any, answers: int
) -> None:
    left = iter([0, 0] + [0] * answers)
    target.postgres.connections = lambda _name: next(left, None)
    said = await tried(target, faults.withdraw_consent, 1)
    few = f"impossible: the database answered {answers} times after the store was stopped"
    assert said in (NAMES if answers == 3 else [few])
    assert target.exceeded == []
    assert target.postgres.allowed == set(NAMES)


async def test_the_consent_to_use_an_embedder_is_withdrawn_and_given_back_while_the_other_consent_is_not(
    clock: Clock, target: Any
) -> None:
    other = f"the consent for {PARTED.name}"
    with target.taking(other):
        assert await tried(target, faults.withdraw_embedder, 1) == f"impossible: another fault has {other}"
    target.postgres.connections = lambda _name: 1
    assert await tried(target, faults.withdraw_embedder, 1) == PARTED.name
    assert target.tenants[PLAIN.name].commands == [
        "annotate memoryindex mi --overwrite memory-index.dev/allowed-namespaces-",
        "annotate memoryindex mi --overwrite memory-index.dev/allowed-namespaces=soak-parted",
    ]
    assert target.exceeded == ["1 connections for soak-parted after 180 s"]
    assert "NOT IN ('memory-recall', 'memory-operator')" in target.postgres.statements[0]


def pod(name: str, **labels: str) -> Pod:
    """Return a pod of Postgres, or of what its label says."""
    postgres = {"cnpg.io/cluster": "pg", "cnpg.io/podRole": "instance", "cnpg.io/instanceRole": "primary"}
    return Pod("soak", name, f"uid-{name}", "10.0.0.9", postgres | {"app.kubernetes.io/component": name} | labels)


HITTING = [name for name in faults.FAULTS if name.split()[0] in {"kill", "pause", "silent"} and name != "kill leader"]
RUNNING = [
    pod(name, **{"cnpg.io/instanceRole": name, "app.kubernetes.io/name": "cloudnative-pg"})
    for name in ("operator", "embedder", "sync", "primary", "replica")
]


@pytest.mark.parametrize("kind", [*HITTING, "other authority", "other certificate"])
async def test_a_fault_that_hits_nothing_is_impossible(clock: Clock, target: Any, kind: str) -> None:
    target.processes.running = lambda: RUNNING
    assert (await tried(target, faults.FAULTS[kind], 1)).startswith("impossible: ")


@pytest.mark.parametrize(
    ("failing", "packets", "happened"),
    [("", "3", True), ("", "0", False), ("nft list", "3", False), ("add rule", "3", False)],
)
async def test_a_disruption_that_met_no_packet_or_cannot_say_so_is_impossible_and_is_always_removed(
    clock: Clock, target: Any, failing: str, packets: str, happened: bool
) -> None:
    target.processes.running = lambda: RUNNING
    target.cluster.failing, target.cluster.packets = failing, packets
    said = await tried(target, faults.FAULTS["network cut"], 1)
    assert said.startswith("impossible: ") is not happened
    assert "delete table ip soak1" in target.cluster.commands[-1]


async def test_a_password_that_was_changed_without_an_answer_is_changed_back(clock: Clock, target: Any) -> None:
    target.postgres.failing = 3
    assert (await tried(target, faults.rotate_password, 1)).startswith("impossible: ")
    first, *others = target.postgres.statements
    assert "PASSWORD 'former'" not in first
    assert [("PASSWORD 'former'" in one) for one in others] == [True, True, True]
    tenant = next(one for one in target.tenants.values() if one.database in first)
    assert (tenant.dsn, tenant.commands) == (f"postgresql://{tenant.database}:former@pg/{tenant.database}", [])


async def test_a_password_that_was_changed_is_written_to_the_secret(clock: Clock, target: Any) -> None:
    tenant = target.tenants[await tried(target, faults.rotate_password, 1)]
    assert "former" not in tenant.dsn
    assert tenant.commands == [tenant.dsn]
    (statement,) = target.postgres.statements
    assert statement.split("'")[1] in tenant.dsn


async def test_the_memory_of_a_pod_is_limited_once_at_a_time_and_is_as_before_afterwards(
    clock: Clock, target: Any, tmp_path: Path
) -> None:
    target.processes.running = lambda: RUNNING
    target.processes.groups = [tmp_path]
    (tmp_path / "memory.current").write_text("1000000")
    limit = tmp_path / "memory.high"
    limit.write_text("max")
    second, first = await overlapping(clock, target, faults.limit_memory)
    assert second == f"impossible: another fault has the memory of {first}"
    assert limit.read_text() == "max"


@pytest.mark.parametrize("failing", ["", "fallocate"])
async def test_a_disk_has_room_again_also_if_the_command_that_fills_it_had_no_answer(
    clock: Clock, target: Any, failing: str
) -> None:
    target.processes.running = lambda: RUNNING[:1]
    target.cluster.failing = failing
    assert (await tried(target, faults.fill_disk, 1)).startswith("impossible: ") is bool(failing)
    assert _done(target.cluster.commands) == ["fallocate", "rm -f", "delete pod"]


async def test_no_disk_is_filled_while_a_claim_has_no_volume(clock: Clock, target: Any) -> None:
    target.processes.running = lambda: RUNNING[:1]
    target.cluster.volume = ""
    assert await tried(target, faults.fill_disk, 1) == "impossible: the claim of operator has no volume yet"
    assert _done(target.cluster.commands) == []


async def test_a_disk_is_filled_by_one_fault_at_a_time(clock: Clock, target: Any) -> None:
    target.processes.running = lambda: RUNNING[:1]
    assert await overlapping(clock, target, faults.fill_disk) == [
        "impossible: another fault has the disk of operator",
        "operator",
    ]
    assert _done(target.cluster.commands) == ["fallocate", "rm -f", "delete pod"]


async def test_a_password_is_changed_by_one_fault_at_a_time(clock: Clock, target: Any) -> None:
    second, first = await overlapping(clock, target, faults.rotate_password)
    assert second == f"impossible: another fault has the password of {first}"
    assert len(target.tenants[first].commands) == 1


def _done(commands: list[str]) -> list[str]:
    return [word for command in commands for word in ("fallocate", "rm -f", "delete pod") if word in command]
