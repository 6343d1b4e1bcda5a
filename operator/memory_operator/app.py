"""Assemble and run the operator process: clients, controller, watches and metrics; SIGTERM ends it cleanly.

Interrupted work loses nothing: every reconcile starts from observed facts, so the next process continues where this one
stopped.
"""

import asyncio
from contextlib import AsyncExitStack
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


async def serve(settings: Settings) -> None:
    """Run the operator until a signal ends it."""
    metrics = Metrics()
    queue = WorkQueue(asyncio.get_running_loop().time)
    router = handlers.EventRouter(queue)
    async with AsyncExitStack() as stack:
        server, _ = start_http_server(METRICS_PORT, registry=metrics.registry)
        stack.callback(server.shutdown)
        configuration = await connection.configuration()
        kube = Kube(await stack.enter_async_context(ApiClient(configuration)), metrics.count_write)
        api_server = await http.addresses_of(configuration.host)
        web = await stack.enter_async_context(http.opened(partial(http.is_public, api_server=api_server)))
        controller = Controller(
            kube=kube,
            observer=Observer(
                kube, DatabaseClient().inspect, EmbedderProbe(web.get, settings.permitted), settings.namespaces
            ),
            queue=queue,
            images=settings.images,
            intervals=RequeueIntervals(settled=settings.resync_seconds),
            permitted=settings.permitted,
            metrics=metrics,
            clock=utc_now,
        )
        _log.info("started", namespaces=list(settings.namespaces) or "all", operator_image=settings.images.operator)
        await _run(settings, controller, router)
        _log.info("stopped")


async def _run(settings: Settings, controller: Controller, router: handlers.EventRouter) -> None:
    """Run the reconcile workers and the watches together; if one fails, all end."""
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(controller.work()) for _ in range(WORKERS)]
        await kopf.operator(
            registry=handlers.build_registry(router, namespaced=bool(settings.namespaces)),
            settings=handlers.kopf_settings(namespaced=bool(settings.namespaces)),
            standalone=True,
            identity=IDENTITY,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            liveness_endpoint=f"http://0.0.0.0:{HEALTH_PORT}/healthz",
        )
        for worker in workers:
            worker.cancel()
