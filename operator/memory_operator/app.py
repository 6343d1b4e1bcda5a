"""Assemble and run the operator process: clients, controller, watches and metrics. SIGTERM ends the process cleanly.

Every replica watches objects, so that a new leader starts with a full cache. Only the leader reconciles, and a leader
that loses its Lease ends its process. An interrupted reconcile loses nothing, because every reconcile starts from
observed facts.
"""

import asyncio
import os
import socket
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from threading import Timer
from typing import Any, cast
from urllib.parse import urlsplit

import kopf
import structlog
from kubernetes.aio.client import ApiClient

from memory_operator.clients import connection, http
from memory_operator.clients.database import DatabaseClient
from memory_operator.clients.destinations import Destinations
from memory_operator.clients.embedder import EmbedderProbe
from memory_operator.clients.kube import Kube, KubeError
from memory_operator.clients.lease import LeaderElection
from memory_operator.clients.resolver import NameResolver, UnresolvedError
from memory_operator.controller import handlers
from memory_operator.controller.cache import WATCHED, WATCHED_OF_CNPG, ObjectCache
from memory_operator.controller.controller import Controller
from memory_operator.controller.loop_pauses import LoopPauses
from memory_operator.controller.metrics import Metrics
from memory_operator.controller.observe import Observer
from memory_operator.controller.queue import WorkQueue
from memory_operator.reconcile.authorization.addresses import is_forbidden
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.reconcile.core import RequeueIntervals
from memory_operator.resources.common import MANAGER
from memory_operator.settings import Settings
from memory_recall.metrics_server import MetricsServer

# kopf would otherwise read the user's name from the system, and a numeric user of a container has none.
IDENTITY = cast("Any", MANAGER)
WORKERS = 12  # objects that are reconciled at the same time; more than may be slow, or of one namespace
METRICS_PORT = 9090
END_SECONDS = 10.0  # for watches and work to end; kopf gives its handlers 5, and Kubernetes gives a pod 30

_log = structlog.get_logger(__name__)


class KopfDidNotEndError(RuntimeError):
    """The watches have ended, but kopf does not return, because some of its tasks wait for each other."""

    def __init__(self) -> None:
        super().__init__("kopf has ended its watches and does not return; the process ends, to be started again")


@dataclass(frozen=True)
class _Process:
    settings: Settings
    kube: Kube
    cache: ObjectCache
    router: handlers.EventRouter
    observer: Observer
    controller: Controller
    metrics: Metrics
    pauses: LoopPauses


async def serve(settings: Settings) -> bool:
    """Run the operator. Return True if a signal ends it, and False if it ends because it has lost its Lease."""
    metrics, pauses, cache = Metrics(), LoopPauses(), ObjectCache()
    metrics.loop_pause.set_function(pauses.longest)
    metrics.loop_busy.set_function(pauses.busiest)
    queue = WorkQueue(asyncio.get_running_loop().time)
    async with AsyncExitStack() as stack:
        stack.callback(MetricsServer(metrics.registry, METRICS_PORT, is_alive=pauses.runs).close)
        configuration = await connection.configuration()
        kube = Kube(await stack.enter_async_context(ApiClient(configuration)), metrics.count_write, cache.remember)
        names = NameResolver()
        stack.callback(names.close)
        excluded = settings.node_addresses | await _addresses_of(configuration.host, names)
        destinations = Destinations(partial(kube.get, "Service"), names, settings.permitted, excluded)
        web = await stack.enter_async_context(http.opened(partial(_may_be_called, settings.permitted, excluded)))
        probe = EmbedderProbe(web.send, settings.permitted, destinations.embedder)
        observer = Observer(
            kube,
            DatabaseClient(destinations.database).inspect,
            probe,
            settings.namespaces,
            cache,
            operator_namespace=settings.namespace,
        )
        controller = Controller(
            kube=kube,
            observer=observer,
            queue=queue,
            images=settings.images,
            intervals=RequeueIntervals(settled=settings.resync_seconds),
            permitted=settings.permitted,
            route=settings.fetch,
            metrics=metrics,
            clock=_now,
        )
        _log.info("started", namespaces=list(settings.namespaces) or "all", operator_image=settings.images.operator)
        handlers.log_failures_once()
        router = handlers.EventRouter(queue)
        try:
            ended = await _run(_Process(settings, kube, cache, router, observer, controller, metrics, pauses))
        finally:
            _end_process_within(END_SECONDS)
        _log.info("stopped")
        return ended


def _now() -> datetime:
    """Return the current UTC time in whole seconds, the precision of timestamps in Kubernetes."""
    return datetime.now(UTC).replace(microsecond=0)


async def _addresses_of(url: str, names: NameResolver) -> frozenset[str]:
    """Return the IP addresses of a URL's host, or an empty set if the host name cannot be resolved."""
    try:
        return frozenset(await names.addresses("", urlsplit(url).hostname or ""))
    except UnresolvedError:
        return frozenset()


def _may_be_called(permitted: Permitted, excluded: frozenset[str], address: str) -> bool:
    return address in permitted.external_hosts or not is_forbidden(address, excluded=excluded)


def _end_process_within(seconds: float) -> None:
    """End the process with status 1 after some seconds if it has not ended by itself.

    asyncio waits without a limit for the tasks that it cancels at its end, and some of kopf's ignore a cancellation.
    """

    def end() -> None:
        _log.error("tasks did not end, so the process ends without them", seconds=seconds)
        os._exit(1)

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()


async def _run(process: _Process) -> bool:
    """Watch objects, and reconcile them while this process is the leader.

    Return False if the process has lost its Lease, and True if it ends for another reason, such as a signal.

    Raises:
        KopfDidNotEndError: kopf ends, but does not return within `END_SECONDS`.
    """
    kopf_ends = asyncio.Event()
    watches = await _watches(process, kopf_ends)
    notice = asyncio.create_task(kopf_ends.wait())
    leading = asyncio.create_task(_lead(process))
    watching = [asyncio.create_task(watch) for watch in watches]
    tasks = [notice, leading, *watching, asyncio.create_task(process.pauses.measure())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if notice in done:  # kopf returns now, or raises the error of a watch that has failed
            done, _ = await asyncio.wait([leading, *watching], timeout=END_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended, running = await asyncio.wait(tasks, timeout=END_SECONDS)
    failed = next((error for task in ended if not task.cancelled() and (error := task.exception())), None)
    if failed:
        raise failed
    if running or not done:
        raise KopfDidNotEndError
    return leading not in done


async def _lead(process: _Process) -> None:
    """Wait until this process is the leader, then reconcile until it loses its Lease.

    If no Lease is configured, the process leads at once and until it is cancelled.
    """
    election = None
    if process.settings.lease:
        namespace, name = process.settings.lease.split("/")
        # The host name of a pod is its name, so that a container that is started again leads again at once.
        election = LeaderElection(process.kube, namespace, name, identity=socket.gethostname())
        await election.acquire()
    process.metrics.leader.set(1)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(process.controller.work()) for _ in range(WORKERS)]
            tasks.append(group.create_task(process.observer.objects.compare()))
            await (election.hold() if election else asyncio.Event().wait())
            for task in tasks:
                task.cancel()
    finally:
        process.metrics.leader.set(0)
        if election:
            await election.release()


async def _watches(process: _Process, kopf_ends: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
    """Return the coroutines that watch: one for each configured namespace, or one for the whole cluster.

    kopf handles no event before it has listed all objects that are to be cached. Therefore each namespace has its own
    watch, so that a namespace whose objects may not be listed does not delay other namespaces. The objects of a
    namespace that is being deleted are not cached, because the operator's Role there may be gone. `kopf_ends` is set
    when one of the watches ends.
    """
    namespaces = process.settings.namespaces
    watch = partial(_watch, process, kopf_ends)
    if not namespaces:
        kinds = (*WATCHED, *WATCHED_OF_CNPG)
        return [watch(None, watched=kinds, kept=kinds)]
    going = {namespace for namespace in namespaces if await _is_going(process.kube, namespace)}
    return [watch(one, watched=WATCHED, kept=() if one in going else WATCHED) for one in namespaces]


async def _is_going(kube: Kube, namespace: str) -> bool:
    try:
        return await kube.is_terminating(namespace)
    except KubeError:
        return False  # kopf waits until the API server can be reached


async def _watch(
    process: _Process,
    kopf_ends: asyncio.Event,
    namespace: str | None,
    *,
    watched: Sequence[str],
    kept: Sequence[str],
) -> None:
    namespaces = [namespace] if namespace else []
    await kopf.operator(
        registry=handlers.build_registry(
            process.router, process.cache, watched=watched, kept=kept, namespaces=namespaces, ended=kopf_ends
        ),
        settings=handlers.kopf_settings(scan=not namespaces),  # scanning takes cluster-wide permissions
        standalone=True,
        identity=IDENTITY,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )
