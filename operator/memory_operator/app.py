"""Assemble and run the operator process: clients, controller, watches and metrics; SIGTERM ends it cleanly.

Interrupted work loses nothing: every reconcile starts from observed facts, so the next process continues where this one
stopped.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import kopf
import structlog
from kubernetes.aio.client import ApiClient
from prometheus_client import start_http_server

from memory_operator.clients import connection, http
from memory_operator.clients.database import DatabaseClient
from memory_operator.clients.embedder import EmbedderProbe
from memory_operator.clients.kube import Kube
from memory_operator.controller import handlers
from memory_operator.controller.cache import WATCHED, WATCHED_OF_CNPG, ObjectCache
from memory_operator.controller.controller import Controller
from memory_operator.controller.history import utc_now
from memory_operator.controller.metrics import Metrics
from memory_operator.controller.observe import Observer
from memory_operator.controller.queue import WorkQueue
from memory_operator.reconcile.core import RequeueIntervals
from memory_operator.resources.common import MANAGER
from memory_operator.settings import Settings

# kopf would otherwise read the user's name from the system, and a numeric user of a container has none.
IDENTITY = cast("Any", MANAGER)
WORKERS = 12  # objects that are reconciled at the same time; more than may wait for databases or for one namespace
HEALTH_PORT = 8080
METRICS_PORT = 9090

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Process:
    settings: Settings
    kube: Kube
    cache: ObjectCache
    router: handlers.EventRouter
    observer: Observer
    controller: Controller


async def serve(settings: Settings) -> None:
    """Run the operator until a signal ends it."""
    metrics, cache = Metrics(), ObjectCache()
    queue = WorkQueue(asyncio.get_running_loop().time)
    async with AsyncExitStack() as stack:
        server, _ = start_http_server(METRICS_PORT, registry=metrics.registry)
        stack.callback(server.shutdown)
        configuration = await connection.configuration()
        kube = Kube(await stack.enter_async_context(ApiClient(configuration)), metrics.count_write, cache.remember)
        api_server = await http.addresses_of(configuration.host)
        web = await stack.enter_async_context(http.opened(partial(http.is_public, api_server=api_server)))
        probe = EmbedderProbe(web.get, settings.permitted)
        observer = Observer(kube, DatabaseClient().inspect, probe, settings.namespaces, cache)
        controller = Controller(
            kube=kube,
            observer=observer,
            queue=queue,
            images=settings.images,
            intervals=RequeueIntervals(settled=settings.resync_seconds),
            permitted=settings.permitted,
            metrics=metrics,
            clock=utc_now,
        )
        _log.info("started", namespaces=list(settings.namespaces) or "all", operator_image=settings.images.operator)
        handlers.log_failures_once()
        router = handlers.EventRouter(queue)
        await _run(_Process(settings, kube, cache, router, observer, controller))
        _log.info("stopped")


async def _run(process: _Process) -> None:
    """Watch and reconcile until one of both ends."""
    workers = [process.controller.work() for _ in range(WORKERS)]
    coroutines = [*workers, process.observer.objects.compare(), *await _watches(process)]
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    failed = next((end for end in ends if isinstance(end, Exception)), None)
    if failed:
        raise failed


async def _watches(process: _Process) -> list[Coroutine[Any, Any, None]]:
    """Return the coroutines that watch, one for each namespace or one for all.

    kopf handles no event before everything that is to be cached has been listed. So each namespace is watched apart:
    one that may not be listed delays no other. One that is being deleted is not cached, since its Role may be gone.
    """
    namespaces = process.settings.namespaces
    if not namespaces:
        kinds = (*WATCHED, *WATCHED_OF_CNPG)
        return [_watch(process, None, watched=kinds, kept=kinds, probed=True)]
    going = {namespace for namespace in namespaces if await process.kube.is_terminating(namespace)}
    return [
        _watch(process, one, watched=WATCHED, kept=() if one in going else WATCHED, probed=one == namespaces[0])
        for one in namespaces
    ]


async def _watch(
    process: _Process, namespace: str | None, *, watched: Sequence[str], kept: Sequence[str], probed: bool
) -> None:
    namespaces = [namespace] if namespace else []
    await kopf.operator(
        registry=handlers.build_registry(
            process.router, process.cache, watched=watched, kept=kept, namespaces=namespaces
        ),
        settings=handlers.kopf_settings(scan=not namespaces),  # scanning takes cluster-wide permissions
        standalone=True,
        identity=IDENTITY,
        clusterwide=not namespaces,
        namespaces=namespaces,
        liveness_endpoint=f"http://0.0.0.0:{HEALTH_PORT}/healthz" if probed else None,
    )
