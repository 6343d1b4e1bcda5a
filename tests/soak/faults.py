"""The faults: each happens to a cluster in use, lasts for some seconds, and is taken back by itself.

A fault that cannot happen, because what it would hit is not there or the API server does not answer, raises
`Impossible`, and counts as none.
"""

import asyncio
import json
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from devcluster.drivers.node import NodeCluster
from devcluster.errors import DevclusterError
from devcluster.install import OPERATOR_NAMESPACE
from devcluster.node.layout import API_PORT, INSIDE, NODE_ADDRESS, Layout
from devcluster.postgres import Postgres
from tests.soak.network import Disruption, Party, listing, packets, restored, rules
from tests.soak.processes import Pod, Processes, send
from tests.soak.stores import EMBEDDER_OF, PARTED, STORES
from tests.support.cluster.consent.withdrawals import Scene
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import INDEX, Tenant

T = TypeVar("T")

CONSENT_SECONDS = 60.0  # after which nothing may be done any more for whom consent was withdrawn
_CONSENT_MARGIN = 5.0  # for what was under way
_CONSENT_LONGEST = 180.0  # while the operator itself is hit by other faults
_WATCHED_SECONDS, _LOOK_SECONDS = 25.0, 5.0  # how long nothing may come back, and how often it is looked at
_ANSWER_SECONDS = 10.0  # that a look waits for the database
_IDLE_LOOKS = 2  # in a row, after which a store counts as stopped
_LOOKS_AFTER = 3  # that the database has to answer after that
_LEASE = "memory-operator"
EXCLUSIVE = frozenset({"switchover"})
"""Faults that happen while no other does."""
_HEALED_SECONDS = 120.0  # for Postgres to be ready before and after a switchover
_NOTICED_SECONDS = 2.0  # in which the instances have begun it
_DISK_LEFT = 64 << 10
_MEMORY_ROOM = 1.03  # of what is in use
COMMAND_SECONDS = 60.0  # that a command of kubectl, psql or nft may take
_CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND application_name LIKE 'memory-%'
AND application_name NOT IN ({others})
"""
_USERS = "'memory-recall'"
_OTHERS = f"{_USERS}, 'memory-operator'"
_WORKERS = frozenset({"sync", "backfill", "swap"})
_SHARED = "memory-index.dev/allowed-namespaces"
_FOLLOWING = """
SELECT application_name FROM pg_stat_replication
WHERE state = 'streaming' AND pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn) < 65536
"""
_PASSWORD = "SET scram_iterations = 1;\nALTER ROLE {role} PASSWORD '{password}';"


class Impossible(Exception):  # noqa: N818 - the name is the reason
    """A fault cannot happen now."""


@dataclass
class SoakCluster:
    """The cluster in use. `tenants` are by the name of the store; `write_dsn` gives users a tenant's new password,
    and `found` is told at once the kind of what is wrong and what it is.

    `exceeded` collects what was done without consent, and `number` counts the disruptions of the network. `taken` names
    what a fault has changed and gives back, and `annotating` is held by whoever writes an annotation.
    """

    platform: Platform
    postgres: Postgres
    tenants: dict[str, Tenant]
    processes: Processes
    write_dsn: Callable[[Tenant], None]
    found: Callable[[str, str], None]
    exceeded: list[str] = field(default_factory=list)
    number: int = 0
    taken: set[str] = field(default_factory=set)
    annotating: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def cluster(self) -> NodeCluster:
        """The Kubernetes cluster."""
        cluster = self.platform.cluster
        assert isinstance(cluster, NodeCluster)
        return cluster

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - the handle's own word
        """Run kubectl with a limit of time."""
        return self.cluster.kubectl(*arguments, input=input, timeout=COMMAND_SECONDS)

    def of(self, component: str) -> list[Pod]:
        """Return the pods of one of our components."""
        return [pod for pod in self.processes.pods() if pod.component == component]

    def instances(self, role: str = "") -> list[Pod]:
        """Return the pods of Postgres, those of one role (`primary`, `replica`) or all."""
        return [
            pod
            for pod in self.processes.pods()
            if pod.labels.get("cnpg.io/cluster") == self.postgres.name
            and pod.labels.get("cnpg.io/podRole") == "instance"
            and (not role or pod.labels.get("cnpg.io/instanceRole") == role)
        ]

    def exceed(self, what: str) -> None:
        """Record something that was done without consent."""
        self.exceeded.append(what)
        self.found("consent exceeded", what)

    @contextmanager
    def taking(self, what: str) -> Iterator[None]:
        """Keep other faults from something during the block, since the first to end would give it back to both.

        Raises:
            Impossible: another fault has it.
        """
        if what in self.taken:
            raise Impossible(f"another fault has {what}")
        self.taken.add(what)
        try:
            yield
        finally:
            self.taken.remove(what)


Fault = Callable[[SoakCluster, random.Random, float], Awaitable[str]]
"""Makes a fault happen for some seconds; returns what was hit."""


def _one(pods: Sequence[Pod], dice: random.Random, what: str) -> Pod:
    if not pods:
        raise Impossible(f"there is no {what}")
    return dice.choice(sorted(pods, key=lambda pod: (pod.namespace, pod.name)))


def _find(component: str) -> Callable[[SoakCluster, random.Random], Pod]:
    if component in {"primary", "replica"}:
        return lambda target, dice: _one(target.instances(component), dice, component)
    if component == "leader":
        return lambda target, _: _leader(target)
    return lambda target, dice: _one(target.of(component), dice, component)


def _leader(target: SoakCluster) -> Pod:
    try:
        lease = json.loads(target.kubectl("-n", OPERATOR_NAMESPACE, "get", "lease", _LEASE, "-o", "json"))
    except DevclusterError as error:
        raise Impossible("the Lease cannot be read") from error
    holder = str(lease["spec"].get("holderIdentity", ""))
    pods = [pod for pod in target.of("operator") if pod.name in holder]
    return _one(pods, random.Random(0), f"leader {holder}")  # noqa: S311


def _some(processes: list[int], name: str) -> list[int]:
    if not processes:
        raise Impossible(f"{name} has no process")
    return processes


def kill(component: str) -> Fault:
    """Make a fault that kills the processes of one pod at once."""
    find = _find(component)

    async def fault(target: SoakCluster, dice: random.Random, _seconds: float) -> str:
        pod = await asyncio.to_thread(find, target, dice)
        send(_some(target.processes.of(pod), pod.name), signal.SIGKILL)
        return pod.name

    return fault


def pause(component: str) -> Fault:
    """Make a fault that stops the processes of one pod for some seconds."""
    find = _find(component)

    async def fault(target: SoakCluster, dice: random.Random, seconds: float) -> str:
        pod = await asyncio.to_thread(find, target, dice)
        processes = _some(target.processes.of(pod), pod.name)
        send(processes, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            send(processes, signal.SIGCONT)
        return pod.name

    return fault


def kill_component(name: str) -> Fault:
    """Make a fault that kills a component of the node, which its supervisor starts again."""

    async def fault(target: SoakCluster, _dice: random.Random, _seconds: float) -> str:
        send(_some(target.processes.component(name), name), signal.SIGKILL)
        return name

    return fault


def pause_component(name: str) -> Fault:
    """Make a fault that stops a component of the node for some seconds."""

    async def fault(target: SoakCluster, _dice: random.Random, seconds: float) -> str:
        processes = _some(target.processes.component(name), name)
        send(processes, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            send(processes, signal.SIGCONT)
        return name

    return fault


_PARTIES = (
    ("operator", "database"),
    ("operator", "api"),
    ("operator", "embedder"),
    ("sync", "database"),
    ("sync", "embedder"),
    ("users", "database"),
    ("users", "embedder"),
    ("primary", "replica"),
    ("primary", "api"),
    ("cnpg", "primary"),
)


def _party(target: SoakCluster, name: str) -> Party:
    if name == "api":
        return Party((NODE_ADDRESS,), API_PORT)
    if name == "users":
        return Party((NODE_ADDRESS,))
    if name == "database":
        pods = target.instances()
    elif name in {"primary", "replica"}:
        pods = target.instances(name)
    elif name == "cnpg":
        pods = [pod for pod in target.processes.pods() if pod.labels.get("app.kubernetes.io/name") == "cloudnative-pg"]
    else:
        pods = target.of(name)
    if not pods:
        raise Impossible(f"there is no {name}")
    return Party(tuple(pod.address for pod in pods if pod.address))


def disrupt(how: Disruption) -> Fault:
    """Make a fault that comes between two parties of the network; if it met no packet, it counts as none."""

    async def fault(target: SoakCluster, dice: random.Random, seconds: float) -> str:
        names = dice.choice(_PARTIES)
        if dice.random() < 0.5 and "api" not in names:
            names = (names[1], names[0])
        one, other = [await asyncio.to_thread(_party, target, name) for name in names]
        target.number += 1
        table = f"soak{target.number}"
        nft = ["nft", "-f", "-"]
        try:
            await _in_network(target, nft, rules(table, one, other, how))
            await asyncio.sleep(seconds)
            met = sum([packets(await _in_network(target, command)) for command in listing(table)])
        finally:
            await until_done(lambda: target.cluster.exec_in_network(nft, input=restored(table)))
        if met == 0:
            raise Impossible(f"no packet came by between {names[0]} and {names[1]}")
        return f"{names[0]} to {names[1]}"

    return fault


async def fill_disk(target: SoakCluster, dice: random.Random, seconds: float) -> str:
    """Fill the volume of one instance of Postgres, make room again, and delete the pod.

    CloudNativePG takes a disk for full as long as the pod that ran out of it is there.
    """
    pod = _one(await asyncio.to_thread(target.instances), dice, "instance")
    where = ["-n", pod.namespace, "get", "pvc", pod.name, "-o", "jsonpath={.spec.volumeName}"]
    name = (await _kubectl(target, where)).strip()
    if not name:  # or the file system of the machine would be filled
        raise Impossible(f"the claim of {pod.name} has no volume yet")
    volume = Layout(INSIDE).volumes / name
    filler = volume / "soak-filler"
    script = f"free=$(df --output=avail -B1 {volume} | tail -1); fallocate -l $((free - {_DISK_LEFT})) {filler}"
    with target.taking(f"the disk of {pod.name}"):
        try:
            await _in_network(target, ["sh", "-c", script])
            await asyncio.sleep(seconds)
        finally:
            await until_done(lambda: target.cluster.exec_in_network(["rm", "-f", str(filler)]))
            delete = ("-n", pod.namespace, "delete", "pod", pod.name, "--wait=false", "--ignore-not-found")
            await until_done(lambda: target.kubectl(*delete))
    return pod.name


async def limit_memory(target: SoakCluster, dice: random.Random, seconds: float) -> str:
    """Limit the memory of one of our pods to hardly more than it uses."""
    component = dice.choice(("operator", "embedder", "sync"))
    pod = _one(await asyncio.to_thread(target.of, component), dice, component)
    with target.taking(f"the memory of {pod.name}"):
        changed = list(_limited(target.processes.memory_groups(pod)))
        if not changed:
            raise Impossible(f"the memory of {pod.name} cannot be limited")
        try:
            await asyncio.sleep(seconds)
        finally:
            for limit, before in changed:
                with suppress(OSError):
                    limit.write_text(before)
    return pod.name


def _limited(groups: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Limit the memory of control groups to hardly more than they use; yield each file and what it said before."""
    for group in groups:
        with suppress(OSError):
            version2 = (group / "memory.high").exists()
            used = int((group / ("memory.current" if version2 else "memory.usage_in_bytes")).read_text())
            limit = group / ("memory.high" if version2 else "memory.limit_in_bytes")
            before = limit.read_text().strip()
            limit.write_text(str(int(used * _MEMORY_ROOM)))
            yield limit, before


async def rotate_password(target: SoakCluster, dice: random.Random, seconds: float) -> str:
    """Give a store's role another password, and the Secret and the users the new one a moment later."""
    tenant = target.tenants[dice.choice(STORES).name]
    password = f"{dice.getrandbits(96):024x}"
    with target.taking(f"the password of {tenant.name}"):
        try:
            await _sql(target, _PASSWORD.format(role=tenant.database, password=password))
        except Impossible:  # it may have been changed all the same
            former = _PASSWORD.format(role=tenant.database, password=tenant.password)
            await until_done(lambda: target.postgres.psql(former, timeout=COMMAND_SECONDS))
            raise
        tenant.dsn = tenant.dsn.replace(tenant.password, password)
        target.write_dsn(tenant)
        await asyncio.sleep(min(seconds, 10.0))
        await until_done(lambda: tenant.write_secret(tenant.dsn))
    return tenant.name


def rotate_secrets(*suffixes: str) -> Fault:
    """Make a fault that has CloudNativePG issue certificates anew, by deleting their Secrets."""

    async def fault(target: SoakCluster, _dice: random.Random, _seconds: float) -> str:
        names = [f"{target.postgres.name}-{suffix}" for suffix in suffixes]
        delete = ["-n", target.postgres.namespace, "delete", "secret", "--ignore-not-found", *names]
        if not await _kubectl(target, delete):
            raise Impossible("none of these Secrets is there")
        return ", ".join(names)

    return fault


async def withdraw_consent(target: SoakCluster, dice: random.Random, _seconds: float) -> str:
    """Let the Postgres cluster allow a store's namespace no longer, and see that nobody but users connects then."""
    free = [store.name for store in STORES if _consent_for(store.name) not in target.taken]
    if not free:
        raise Impossible("every consent is withdrawn already")
    tenant = target.tenants[dice.choice(free)]
    scene = Scene(target.platform, tenant)
    await _withdraw(target, tenant, scene.annotate, _USERS)
    return tenant.name


async def withdraw_embedder(target: SoakCluster, _dice: random.Random, _seconds: float) -> str:
    """Let the owner of a shared embedder allow the other store no longer, and see that no worker of it connects then.

    The operator still may look at the database, since that consent is there.
    """
    tenant = target.tenants[PARTED.name]
    await _withdraw(target, tenant, partial(share_embedder, target.tenants), _OTHERS)
    return tenant.name


def share_embedder(tenants: Mapping[str, Tenant], *, allowed: bool) -> None:
    """Allow the partitioned store to use the embedder of the store that has it, or no longer."""
    change = f"{_SHARED}={PARTED.name}" if allowed else f"{_SHARED}-"
    command = ("annotate", "memoryindex", INDEX, "--overwrite", change)
    tenants[EMBEDDER_OF[PARTED.name]].kubectl(*command, timeout=COMMAND_SECONDS)


async def _withdraw(target: SoakCluster, tenant: Tenant, annotate: Callable[..., object], others: str) -> None:
    """Withdraw a consent for a store while no other one for it is withdrawn, watch what comes of it, and give it back.

    `annotate` gives the consent or withdraws it, as `allowed` says; `others` are the names in SQL of connections that
    may go on.
    """
    with target.taking(_consent_for(tenant.name)):
        try:
            async with target.annotating:
                await _attempted(lambda: annotate(allowed=False), "the consent cannot be withdrawn")
            await _watch(target, tenant, _CONNECTIONS.format(database=tenant.database, others=others))
        finally:
            async with target.annotating:
                await until_done(lambda: annotate(allowed=True))


async def _watch(target: SoakCluster, tenant: Tenant, counting: str) -> None:
    """Look every 5 s, from 65 s after the withdrawal on, at what is still done for a store, and note what may not be.

    The store counts as stopped at the second of two looks in a row that find no connection and no pod of a worker, and
    in any case after 180 s, since the operator may itself be hit by other faults. At no later look in the 25 s from
    then on may there be a connection or such a pod. Connections alone would not tell that it has stopped: they are also
    gone when the database has failed.

    Raises:
        Impossible: the database answered at less than three looks after the store was stopped.
    """
    began = time.monotonic()
    stopped, idle, looked = began + _CONSENT_LONGEST, 0, 0
    await asyncio.sleep(CONSENT_SECONDS + _CONSENT_MARGIN)
    while (now := time.monotonic()) < stopped + _WATCHED_SECONDS:
        try:
            connections = int(await _sql(target, counting, _ANSWER_SECONDS))
            looked += now >= stopped
            if connections and now >= stopped:
                target.exceed(f"{connections} connections for {tenant.name} after {now - began:.0f} s")
                return
            worker = await _has_worker(target, tenant.name)
            if worker and now >= stopped:
                target.exceed(f"a worker of {tenant.name} after {now - began:.0f} s")
                return
            idle = 0 if connections or worker else idle + 1
        except Impossible:
            idle = 0
        if idle == _IDLE_LOOKS:
            stopped = min(stopped, now)
        await asyncio.sleep(_LOOK_SECONDS)
    if looked < _LOOKS_AFTER:
        raise Impossible(f"the database answered {looked} times after the store was stopped")


async def _has_worker(target: SoakCluster, namespace: str) -> bool:
    """Return whether a pod of a worker is there that has not ended, also one that does not run yet."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    listed = await _attempted(lambda: target.cluster.read(path), "the pods cannot be read")
    return any(
        pod["status"].get("phase") not in {"Succeeded", "Failed"}
        and pod["metadata"].get("labels", {}).get("app.kubernetes.io/component") in _WORKERS
        for pod in listed["items"]
    )


def _consent_for(name: str) -> str:
    return f"the consent for {name}"


async def evict(target: SoakCluster, dice: random.Random, _seconds: float) -> str:
    """Evict one of our pods, as the drain of a node does."""
    component = dice.choice(("operator", "embedder", "sync"))
    pod = _one(await asyncio.to_thread(target.of, component), dice, component)
    meta = {"name": pod.name, "namespace": pod.namespace}
    eviction = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta})
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
    await _kubectl(target, ["create", "--raw", path, "-f", "-"], eviction)
    return pod.name


async def switch_over(target: SoakCluster, dice: random.Random, _seconds: float) -> str:
    """Make a replica the primary, as a careful administrator does; it happens while no other fault does.

    Only failovers ask for a quorum: CloudNativePG promotes whatever is named, whether or not it has all commits. So all
    instances have to be ready before, the replica has to follow, and it is waited until all are ready again.
    """
    await _until_ready(target)
    following = (await _sql(target, _FOLLOWING)).split()
    replicas = await asyncio.to_thread(target.instances, "replica")
    replica = _one([pod for pod in replicas if pod.name in following], dice, "replica that follows")
    status = {
        "targetPrimary": replica.name,
        "targetPrimaryTimestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime()),
        "phase": "Switchover in progress",
        "phaseReason": f"Switching over to {replica.name}",
    }
    where = ["-n", target.postgres.namespace, "patch", "clusters.postgresql.cnpg.io", target.postgres.name]
    await _kubectl(target, [*where, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})])
    await asyncio.sleep(_NOTICED_SECONDS)
    try:
        await _until_ready(target)
    except Impossible:  # to begin it was possible
        return f"{replica.name}, after which Postgres was not ready for {_HEALED_SECONDS:.0f} s"
    return replica.name


async def _until_ready(target: SoakCluster) -> None:
    """Wait until all instances of Postgres are ready."""
    deadline = time.monotonic() + _HEALED_SECONDS
    while True:
        with suppress(DevclusterError):
            if await asyncio.to_thread(target.postgres.is_ready):
                return
        if time.monotonic() > deadline:
            raise Impossible("Postgres is not ready")
        await asyncio.sleep(1)


FAULTS: dict[str, Fault] = {
    **{f"kill {name}": kill(name) for name in ("operator", "leader", "primary", "replica", "embedder", "sync")},
    **{f"kill {name}": kill_component(name) for name in ("kube-apiserver", "etcd", "kubelet")},
    **{f"pause {name}": pause(name) for name in ("operator", "primary", "replica", "embedder", "sync")},
    "pause kube-apiserver": pause_component("kube-apiserver"),
    "silent DNS": pause_component("coredns"),
    **{f"network {how}": disrupt(how) for how in Disruption},
    "full disk": fill_disk,
    "little memory": limit_memory,
    "other password": rotate_password,
    "other authority": rotate_secrets("ca", "server", "replication"),
    "other certificate": rotate_secrets("server"),
    "consent withdrawn": withdraw_consent,
    "embedder withdrawn": withdraw_embedder,
    "eviction": evict,
    "switchover": switch_over,
}


async def _sql(target: SoakCluster, statement: str, seconds: float = COMMAND_SECONDS) -> str:
    return await _attempted(lambda: target.postgres.psql(statement, timeout=seconds), "the database does not answer")


async def _kubectl(target: SoakCluster, arguments: Sequence[str], given: str | None = None) -> str:
    return await _attempted(lambda: target.kubectl(*arguments, input=given), "kubectl failed")


async def _in_network(target: SoakCluster, command: Sequence[str], given: str | None = None) -> str:
    run = target.cluster.exec_in_network
    return await _attempted(lambda: run(command, input=given, timeout=COMMAND_SECONDS), f"{command[0]} failed")


async def _attempted(act: Callable[[], T], otherwise: str) -> T:
    """Do something in a thread; a fault that cannot begin counts as none."""
    try:
        return await asyncio.to_thread(act)
    except DevclusterError as error:
        raise Impossible(f"{otherwise}: {str(error)[:200]}") from error


async def until_done(act: Callable[[], object], seconds: float = 300.0) -> None:
    """Do something in a thread until it succeeds, since what was begun has to be ended.

    Raises:
        DevclusterError: it did not succeed within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            await asyncio.to_thread(act)
        except DevclusterError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(1)
        else:
            return
