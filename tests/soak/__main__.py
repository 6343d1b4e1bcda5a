"""`python -m tests.soak`: faults on a cluster in use, for as long as is asked; the last line is JSON."""

import asyncio
import json
import random
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import devcluster
from devcluster.demo.environment import MODEL
from devcluster.drivers.node import NodeCluster
from devcluster.errors import DevclusterError
from devcluster.node.layout import INSIDE, Layout
from devcluster.postgres import Postgres
from memory_embedder.models.profiles import PROFILES
from memory_operator.app import METRICS_PORT
from tests.soak.faults import COMMAND_SECONDS, EXCLUSIVE, FAULTS, Impossible, SoakCluster, share_embedder, until_done
from tests.soak.ledger import MARKER
from tests.soak.locking import SharedExclusiveLock
from tests.soak.logs import Logs
from tests.soak.pooler import Pooler
from tests.soak.processes import Processes
from tests.soak.schedule import Planned, schedule
from tests.soak.slopes import growing
from tests.soak.stores import EMBEDDER_OF, NAMED, PARTED, STORES
from tests.soak.verdict import failures
from tests.support.cluster.api import INDEXES
from tests.support.cluster.conditions import is_ready
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import INDEX, Tenant

_FAULTS_PER_MINUTE = 6.0
_THREADS = 64
_VOLUME_MIB = 640
_PACE_SECONDS = 10.0
_LOGS_SECONDS = 2.0
_TEXTS_SECONDS = 30.0  # between two looks for texts of memories in objects and metrics
# An instance that is stopped waits for its clients for three minutes by default, and refuses new ones meanwhile.
_SHUTDOWN = {"smartShutdownTimeout": 5, "stopDelay": 60, "switchoverDelay": 60}
_LONGEST_WAIT = 600.0
_REVIVED_SECONDS = 60.0  # for PgBouncer to run again once it has ended
# In which the operator creates a Job, each time that rows are stored; other faults may keep it from that.
_JOB_SECONDS = (60.0, 60.0, 600.0)
_SLACK = {
    "memory": 48.0, "files": 24.0, "threads": 12.0, "tasks": 12.0, "connections": 12.0, "dead rows": 1500.0,
    "slots": 1.0,
}  # fmt: skip
_COMPONENTS = ("operator", "embedder", "sync")
_OBJECTS = "objects"
_KINDS = "events,memoryindexes,pods,configmaps,jobs,leases"
_MANY_ROWS = """
INSERT INTO memories (id, content, user_id)
SELECT {first} + number, 'note ' || number || ' of a store that somebody brought along at once', 'dan'
FROM generate_series(1, 2000) AS number ON CONFLICT DO NOTHING
"""


def soak(
    minutes: Annotated[float, typer.Option(help="How long faults happen")] = 60.0,
    seed: Annotated[int, typer.Option(help="Of the faults and of what users do")] = 1,
) -> None:
    """Let users work on a cluster while faults happen; the status is 1 if anything was wrong.

    Example: python -m tests.soak --minutes 15 --seed 7
    """
    devcluster.prepare()
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as scratch,
        devcluster.start(f"soak-{datetime.now(UTC):%H%M%S}") as cluster,
    ):
        if not isinstance(cluster, NodeCluster):
            raise typer.BadParameter("faults need the node driver: set DEVCLUSTER_DRIVER=node")
        run = Run(cluster, Path(scratch), minutes * 60, seed)
        try:
            figures = asyncio.run(run.run())
        except BaseException:
            typer.echo(f"ended before its time with seed {seed}; wrong until then: {dict(run.wrong)}", err=True)
            raise
    reasons = failures(figures)
    for reason in reasons:
        typer.echo(f"not passed with seed {seed}: {reason}", err=True)
    typer.echo(json.dumps(figures))
    raise typer.Exit(1 if reasons else 0)


class Run:
    """One run: the cluster, what happens to it, and what was seen."""

    def __init__(self, cluster: NodeCluster, scratch: Path, seconds: float, seed: int) -> None:
        self._cluster = cluster
        self._scratch = scratch
        self._seconds = seconds
        self._seed = seed
        self.wrong: Counter[str] = Counter()
        self._happened: Counter[str] = Counter()
        self._impossible: Counter[str] = Counter()
        self._series: dict[str, list[tuple[float, float]]] = {}
        self._summary: dict[str, Any] = {}
        self._not_ready: list[str] = []
        self._incomplete: list[str] = []
        self._quiet = asyncio.Event()
        self._again: dict[str, float] = {}
        self._began = 0.0
        self._pooler: Pooler | None = None
        self._logs = Logs(cluster.logs)
        self._shown: set[str] = set()
        self._looks = dict.fromkeys((_OBJECTS, *map(_metrics, _COMPONENTS)), 0)
        self._over = asyncio.Event()
        self._lock = SharedExclusiveLock()

    def say(self, text: str) -> None:
        """Print progress, with the seconds since the faults began."""
        since = f"{time.monotonic() - self._began:6.1f}" if self._began else "      "
        sys.stderr.write(f"{since}  {text}\n")

    def _found(self, kind: str, what: str) -> None:
        """Count something wrong, and say so."""
        self.wrong[kind] += 1
        self.say(f"WRONG {kind}: {what}")

    async def run(self) -> dict[str, Any]:
        """Prepare, run, and return the figures.

        While the API server is stopped many commands wait for it, each in a thread, and others must not wait for them.
        """
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
        try:
            return await self._run()
        finally:
            if self._pooler is not None:
                self._pooler.close()

    async def _run(self) -> dict[str, Any]:
        target = await asyncio.to_thread(self._prepare)
        planned = schedule(
            list(FAULTS), seconds=self._seconds, count=round(self._seconds / 60 * _FAULTS_PER_MINUTE), seed=self._seed
        )
        self.say(f"seed {self._seed}, {len(planned)} faults")
        for one in planned:
            self.say(f"planned at {one.at:.1f}: {one.kind}, {one.seconds:.1f} s, dice {one.dice}")
        users = await self._start_users()
        reading = asyncio.create_task(self._read_output(users))
        self._began = time.monotonic()
        works = (self._sample(target), self._look(target), self._revive_pooler(), self._read_logs())
        *busy, logging = [asyncio.create_task(work) for work in works]
        async with asyncio.TaskGroup() as running:
            for fault in planned:
                running.create_task(self._happen(target, fault))
            running.create_task(self._change(target, users))
            running.create_task(self._or_ended(self._until(1.0), reading, *busy, logging))
        self.say("the last fault is over")
        over = time.monotonic()
        await self._command(users, "quiet")
        await self._until_ready(target)
        quiet = asyncio.wait_for(self._quiet.wait(), 2 * _LONGEST_WAIT)  # the users themselves wait once so long
        await self._or_ended(quiet, reading, *busy, logging)
        ready = time.monotonic() - over
        for task in busy:  # no recall is made from here on
            task.cancel()
        await self._command(users, "judge")
        await asyncio.wait_for(reading, _LONGEST_WAIT)
        await self._look_at_last(target)
        self._over.set()
        await logging
        return self._figures(target, planned, ready)

    def _figures(self, target: SoakCluster, planned: Sequence[Planned], ready: float) -> dict[str, Any]:
        logged = sorted(self._logs.found | self._shown)
        counts = dict(self._summary["counts"])
        return {
            "minutes": round(self._seconds / 60, 1),
            "seed": self._seed,
            "faults": sum(self._happened.values()),
            "kinds": len(self._happened),
            "recalls": self._summary["recalls"],
            "refused": self._summary["refused"],
            "longest_recall_s": self._summary["longest_recall_s"],
            "leaks": counts.pop("leak", 0),
            "stale": counts.pop("stale", 0),
            "lost": counts.pop("lost", 0),
            "late": counts.pop("late", 0),
            "consent_exceeded": len(target.exceeded),
            "other": sum(counts.values()),
            "logged": len(logged),
            "ready_after_s": round(ready, 1),
            "slopes": growing(self._series, _SLACK),
            "details": {
                "planned": dict(sorted(Counter(fault.kind for fault in planned).items())),
                "happened": dict(sorted(self._happened.items())),
                "impossible": dict(sorted(self._impossible.items())),
                "not_ready": self._not_ready,
                "incomplete": self._incomplete,
                "again": self._again,
                "looks": self._looks,
                "users": self._summary,
                "exceeded": target.exceeded,
                "pooler_ended": self._pooler.ended if self._pooler else 0,
                "logged": logged[:10],
            },
        }

    # Preparing

    def _prepare(self) -> SoakCluster:
        self._limit_volumes()
        devcluster.install_cnpg(self._cluster)
        images = devcluster.load_images(self._cluster)
        postgres = self._postgres()
        platform = Platform(postgres, images.operator, images.embedder)
        platform.install("operator.replicas=2")
        tenants = {store.name: Tenant(postgres, store.name, images.operator) for store in STORES}
        for store in STORES:
            tenant = tenants[store.name]
            tenant.create()
            tenant.as_owner(store.create)
            shared = EMBEDDER_OF[store.name]
            changes = dict(store.spec)
            if shared != store.name:
                changes["embedder"] = {"ref": {"name": INDEX, "namespace": shared}}
            tenant.apply_index(**changes)
        share_embedder(tenants, allowed=True)
        self._pooler = Pooler(self._cluster, tenants[PARTED.name].dsn)
        for tenant in tenants.values():
            self._write_dsn(tenant)
            tenant.wait_ready()
            self.say(f"{tenant.name} is Ready")
        return SoakCluster(platform, postgres, tenants, Processes(self._cluster), self._write_dsn, self._found)

    def _limit_volumes(self) -> None:
        """Give all volumes a size, so that they can be filled. Postgres gets some of them."""
        volumes = Layout(INSIDE).volumes
        mounted = f"mount -t tmpfs -o size={_VOLUME_MIB}m,mode=0777 tmpfs $volume"
        self._cluster.exec_in_network(["sh", "-ec", f"for volume in {volumes}/*; do {mounted}; done"])

    def _postgres(self) -> Postgres:
        return devcluster.create_postgres(
            self._cluster,
            instances=3,
            cpu="200m",
            storage="512Mi",
            parameters={"max_wal_size": "128MB", "min_wal_size": "64MB", "wal_keep_size": "64MB",
                        "max_slot_wal_keep_size": "128MB"},
            synchronous=1,
            further=_SHUTDOWN,
        )  # fmt: skip

    def _write_dsn(self, tenant: Tenant) -> None:
        _replace(self._file(tenant.name), tenant.dsn)
        if tenant.name == PARTED.name and self._pooler is not None:
            self._pooler.follow(tenant.dsn)
            _replace(self._file(f"{tenant.name}-pooled"), self._pooler.dsn(tenant.dsn))

    def _file(self, name: str) -> Path:
        return self._scratch / f"{name}.dsn"

    async def _start_users(self) -> asyncio.subprocess.Process:
        stores = {
            store.name: {
                "table": store.table,
                "dsn_file": str(self._file(f"{store.name}-pooled" if store.pooled else store.name)),
                "direct_file": str(self._file(store.name)),
                "pooled": store.pooled,
                "embedder": f"http://{INDEX}-embedder.{EMBEDDER_OF[store.name]}.svc:8080",
            }
            for store in STORES
        }
        order = json.dumps({"seed": self._seed, "stores": stores, "log": str(self._cluster.logs / "recalls.log")})
        command = self._cluster.exec_command([sys.executable, "-m", "tests.soak.users", order])
        return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=1 << 24)

    # Running

    async def _until(self, share: float) -> None:
        """Wait until this share of the run is over."""
        await asyncio.sleep(max(0.0, self._began + self._seconds * share - time.monotonic()))

    async def _happen(self, target: SoakCluster, fault: Planned) -> None:
        await asyncio.sleep(self._began + fault.at - time.monotonic())
        dice = random.Random(fault.dice)  # noqa: S311 - the same in every run
        began = time.monotonic()
        turn = self._lock.exclusive() if fault.kind in EXCLUSIVE else self._lock.shared()
        try:
            async with turn:
                began = time.monotonic()
                hit = await FAULTS[fault.kind](target, dice, fault.seconds)
        except Impossible as error:
            self._impossible[fault.kind] += 1
            self.say(f"{fault.kind}: not possible: {str(error)[:160]}")
        else:
            self._happened[fault.kind] += 1
            self.say(f"{fault.kind}: {hit}, for {time.monotonic() - began:.1f} s")

    async def _change(self, target: SoakCluster, users: asyncio.subprocess.Process) -> None:
        """Swap the model of one store twice, upgrade the operator between, and give another store many rows."""
        plain = dict(NAMED.spec)
        custom = {
            **plain,
            "embedding__model": "custom",
            "embedding__pooling": "mean",
            "embedding__maxTokens": 256,
            "embedding__documentPrefix": "passage: ",
            "embedding__source": {
                "image": {
                    "reference": target.platform.embedder_image,
                    "path": f"/models/{MODEL}.gguf",
                    "digest": PROFILES[MODEL].file_digest,
                }
            },
        }
        await self._until(0.25)
        await self._swap(target, users, custom, "custom")
        await self._until(0.45)
        await self._upgrade(target)
        await self._until(0.6)
        await self._swap(target, users, plain, MODEL)
        await self._until(0.8)
        await self._import(target.tenants[PARTED.name])

    async def _swap(
        self, target: SoakCluster, users: asyncio.subprocess.Process, spec: dict[str, Any], model: str
    ) -> None:
        """Have the model of a store exchanged, and tell users of its end only once it is completed."""
        tenant, began = target.tenants[NAMED.name], time.monotonic()
        await self._command(users, f"swapping {NAMED.name}")
        await until_done(lambda: tenant.apply_index(**spec), _LONGEST_WAIT)
        if await _seen(lambda: _is_served(tenant.index(), model)):
            await self._command(users, f"swapped {NAMED.name}")
            self.say(f"swapped to {model} in {time.monotonic() - began:.0f} s")
        else:
            self._incomplete.append(f"the swap to {model}, within {_LONGEST_WAIT:.0f} s")

    async def _import(self, tenant: Tenant) -> None:
        """Store 2,000 rows at once, and wait until a new Job has embedded rows.

        If the sync worker has embedded them before the operator looks, no Job comes; then the next 2,000 are stored.
        """
        began, before = time.monotonic(), set[str]()
        await until_done(lambda: before.update(_backfills(tenant)), _LONGEST_WAIT)
        for number, seconds in enumerate(_JOB_SECONDS):
            rows = _MANY_ROWS.format(first=1_000_000 + number * 2000)
            await until_done(partial(tenant.as_owner, rows, timeout=COMMAND_SECONDS), _LONGEST_WAIT)
            await self._reconcile(tenant, f"rows{number}")
            if await _seen(lambda: _backfills(tenant).keys() - before, seconds):
                break
            self.say(f"stored many rows at once, of which no backfill began within {seconds:.0f} s")
        else:
            self._incomplete.append(f"a backfill of rows stored at once, {len(_JOB_SECONDS)} times")
            return
        if await _seen(lambda: any(done for job, done in _backfills(tenant).items() if job not in before)):
            self.say(f"stored many rows at once; their backfill had ended after {time.monotonic() - began:.0f} s")
        else:
            self._incomplete.append(f"the backfill of rows stored at once, within {_LONGEST_WAIT:.0f} s")

    async def _upgrade(self, target: SoakCluster) -> None:
        """Install the operator's release anew with another image, which has another name alone."""
        image = f"{target.platform.image}-next"
        await asyncio.to_thread(self._cluster.tag_image, target.platform.image, image)
        platform = Platform(target.postgres, image, target.platform.embedder_image)
        await until_done(lambda: platform.install("operator.replicas=2"), _LONGEST_WAIT)
        self.say("upgraded the operator")

    async def _until_ready(self, target: SoakCluster) -> None:
        """Wait until every MemoryIndex has been reconciled once more and is Ready.

        A status from before would be True also if nobody were there to change it.
        """
        began = time.monotonic()
        waiting = [tenant.name for tenant in target.tenants.values()]
        for tenant in target.tenants.values():
            await self._reconcile(tenant, "over")
        said = 0.0
        while waiting and time.monotonic() - began < _LONGEST_WAIT:
            for name in list(waiting):
                with suppress(DevclusterError):
                    path = f"{INDEXES}/namespaces/{name}/memoryindexes/{INDEX}"
                    item = await asyncio.to_thread(self._cluster.read, path)
                    if is_ready(item) and item["status"].get("lastHandledReconcileAt") == "over":
                        waiting.remove(name)
                    elif time.monotonic() - said > 20:
                        said = time.monotonic()
                        faulty = [
                            f"{one['type']} {one['reason']}: {one['message'][:150]}"
                            for one in item["status"]["conditions"]
                            if one["status"] != "True" and one["type"] not in {"Reconciling", "Stalled"}
                        ]
                        self.say(f"{name} is not Ready, or not reconciled again: {'; '.join(faulty)}")
            await asyncio.sleep(1)
        self._not_ready = waiting

    async def _reconcile(self, tenant: Tenant, request: str) -> None:
        """Have the operator reconcile a MemoryIndex at once; its status names the request afterwards."""
        command = ("annotate", "memoryindex", INDEX, f"memory-index.dev/reconcile-at={request}", "--overwrite")
        await until_done(partial(tenant.kubectl, *command, timeout=COMMAND_SECONDS))

    async def _revive_pooler(self) -> None:
        while self._pooler is not None:
            await until_done(self._pooler.revive, _REVIVED_SECONDS)
            await asyncio.sleep(1)

    async def _sample(self, target: SoakCluster) -> None:
        while True:
            await asyncio.to_thread(self._sample_once, target)
            await asyncio.sleep(_PACE_SECONDS)

    async def _look(self, target: SoakCluster) -> None:
        """Look for texts in objects and metrics again and again; what cannot be read is read the next time."""
        while True:
            for name, place, command in await asyncio.to_thread(_pages, target):
                with suppress(DevclusterError):
                    await asyncio.to_thread(self._look_into, name, place, *command)
            await asyncio.sleep(_TEXTS_SECONDS)

    def _sample_once(self, target: SoakCluster) -> None:
        found: dict[str, float] = {}
        for component in _COMPONENTS:
            for pod in target.of(component):
                usage = target.processes.usage(pod)
                if usage:
                    parts = {"memory": usage.memory, "files": usage.files, "threads": usage.threads}
                    for name, value in parts.items():
                        key = f"{name} of {component}"
                        found[key] = max(found.get(key, 0.0), value)
        self._record(found)

    def _record(self, samples: dict[str, float]) -> None:
        for name, value in samples.items():
            self._series.setdefault(name, []).append((time.monotonic(), value))

    async def _command(self, users: asyncio.subprocess.Process, line: str) -> None:
        assert users.stdin is not None
        users.stdin.write(f"{line}\n".encode())
        await users.stdin.drain()

    async def _or_ended(self, waiting: Awaitable[object], *others: "asyncio.Task[None]") -> None:
        """Await something while other tasks run; if one of these ends before, raise its error."""
        task = asyncio.ensure_future(waiting)
        await asyncio.wait([task, *others], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()  # type: ignore[return-value]  # nobody uses it
        task.cancel()
        for other in others:
            if other.done():
                await other
        raise DevclusterError("the users ended by themselves", remedy="read what they printed above")

    async def _read_output(self, users: asyncio.subprocess.Process) -> None:
        assert users.stdout is not None
        async for line in users.stdout:
            message = json.loads(line)
            if "samples" in message:
                self._record(message["samples"])
            elif "wrong" in message:
                self._found(message["wrong"], f"{message['what']} at {message['at'] - self._began:.1f}")
            elif "slow" in message:
                self.say(message["slow"])
            elif "quiet" in message:
                self._again = message["quiet"]
                self._quiet.set()
            else:
                self._summary = message["summary"]
        if await users.wait() or not self._summary:
            raise DevclusterError("the users ended by themselves", remedy="read what they printed above")

    async def _look_at_last(self, target: SoakCluster) -> None:
        """Look for texts of memories until everything could be read."""
        try:
            await until_done(lambda: self._look_for_texts(target))
        except DevclusterError as error:
            self._incomplete.append(f"the last look for texts: {str(error)[:200]}")

    def _look_for_texts(self, target: SoakCluster) -> None:
        """Look for texts of memories in objects and all pages of metrics.

        Raises:
            DevclusterError: one of them cannot be read now.
        """
        for name, place, command in _pages(target):
            self._look_into(name, place, *command)

    async def _read_logs(self) -> None:
        """Read logs as they grow, so that little of one is left unread when its pod goes, and once more at the end."""
        last = False
        while not last:
            last = self._over.is_set()
            for name in await asyncio.to_thread(self._logs.read):
                self._found("logged", name)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _LOGS_SECONDS)

    def _look_into(self, name: str, place: str, *command: str) -> None:
        """Look for texts in what kubectl prints, and count the look by its name; `place` is where a text is found."""
        if MARKER.search(self._cluster.kubectl(*command, timeout=_PACE_SECONDS).encode()) and place not in self._shown:
            self._shown.add(place)
            self._found("logged", place)
        self._looks[name] += 1


def _pages(target: SoakCluster) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return of what is looked into for texts the name, the place, and the command of kubectl that prints it."""
    found: list[tuple[str, str, tuple[str, ...]]] = [(_OBJECTS, _OBJECTS, ("get", _KINDS, "-A", "-o", "json"))]
    for component in _COMPONENTS:
        for pod in target.of(component):
            page = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}:{METRICS_PORT}/proxy/metrics"
            found.append((_metrics(component), _metrics(pod.name), ("get", "--raw", page)))
    return found


def _metrics(name: str) -> str:
    return f"metrics of {name}"


def _is_served(item: Mapping[str, Any], model: str) -> bool:
    """Return whether a MemoryIndex is Ready, and its model is this one and is not being exchanged."""
    models = item.get("status", {}).get("model", {})
    return models.get("active") == model and "next" not in models and is_ready(item)


def _backfills(tenant: Tenant) -> dict[str, bool]:
    """Return the names of the Jobs that backfill a store, each with whether it has succeeded."""
    jobs = tenant.cluster.read(f"/apis/batch/v1/namespaces/{tenant.name}/jobs")["items"]
    return {
        job["metadata"]["name"]: bool(job.get("status", {}).get("completionTime"))
        for job in jobs
        if job["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "backfill"
    }


async def _seen(look: Callable[[], object], seconds: float = _LONGEST_WAIT) -> bool:
    """Look once a second until something is seen, and return whether it was; what cannot be read is not seen."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(DevclusterError):
            if await asyncio.to_thread(look):
                return True
        await asyncio.sleep(1)
    return False


def _replace(file: Path, text: str) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.rename(file)


if __name__ == "__main__":
    typer.run(soak)
