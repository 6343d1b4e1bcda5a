"""Wiring and life of the process: clients, controller, watches, metrics; a clean end on SIGTERM.

Work that is interrupted loses nothing: every look starts from what is true, so the next process goes on where this
one stopped.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any, cast

import httpx
import kopf
import structlog
from lightkube import KubeConfig
from prometheus_client import start_http_server

from memory_operator.clients import tls
from memory_operator.clients.database import inspect
from memory_operator.clients.embedder import EmbedderProbe
from memory_operator.clients.kube import Kube
from memory_operator.controller import handlers
from memory_operator.controller.controller import Controller
from memory_operator.controller.history import utc_now
from memory_operator.controller.metrics import Metrics
from memory_operator.controller.observe import Observer
from memory_operator.controller.queue import WorkQueue
from memory_operator.resources.common import MANAGER
from memory_operator.settings import Settings

# kopf would otherwise ask the system for the user's name, and a numeric user of a container has none.
IDENTITY = cast("Any", MANAGER)

_log = structlog.get_logger(__name__)


async def serve(settings: Settings) -> None:
    """Run until a signal ends it."""
    metrics = Metrics()
    queue = WorkQueue(asyncio.get_running_loop().time)
    wakers = handlers.Wakers(queue)
    async with AsyncExitStack() as stack:
        if settings.metrics_port:
            server, _ = start_http_server(settings.metrics_port, registry=metrics.registry)
            stack.callback(server.shutdown)
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=3.0, trust_env=False))
        client = await stack.enter_async_context(tls.client(KubeConfig.from_env()))
        kube = Kube(client, metrics.wrote)
        controller = Controller(
            kube=kube,
            observer=Observer(kube, inspect, EmbedderProbe(http)),
            queue=queue,
            images=settings.images,
            pace=settings.pace,
            metrics=metrics,
            clock=utc_now,
        )
        _log.info("started", namespaces=list(settings.namespaces) or "all", operator_image=settings.image)
        await _run(settings, controller, wakers)
        _log.info("stopped")


async def _run(settings: Settings, controller: Controller, wakers: handlers.Wakers) -> None:
    """Workers beside the watches; whichever fails ends both."""
    endpoint = f"http://0.0.0.0:{settings.health_port}/healthz" if settings.health_port else None
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(controller.work()) for _ in range(settings.workers)]
        await kopf.operator(
            registry=handlers.registry(wakers, namespaced=bool(settings.namespaces)),
            settings=handlers.settings(namespaced=bool(settings.namespaces)),
            standalone=True,
            identity=IDENTITY,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            liveness_endpoint=endpoint,
        )
        for worker in workers:
            worker.cancel()
