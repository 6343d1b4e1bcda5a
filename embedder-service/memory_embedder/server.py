"""Runs the service as a process: opens its ports, loads the model in the background, and drains on SIGTERM.

Callers and probes have one port each. Both ports open before the model is loaded, so that probes get the state of the
service instead of a refused connection. The port for probes stays open until every admitted request is answered.

Kubernetes directs new requests to a pod for a moment after it has begun to stop the pod. Therefore, when the signal
comes, a service that is ready first reports that it is not ready any more, and accepts requests for the shutdown delay
before it drains.
"""

import asyncio
import errno
import os
import resource
import signal
import socket
import threading
from contextlib import suppress

import structlog
import uvicorn

from memory_embedder.engine.protocol import Engine, EngineOptions
from memory_embedder.errors import EmbedderError, ErrorKind, configuration_error
from memory_embedder.hardening import return_large_blocks
from memory_embedder.http.app import build_app, build_probe_app
from memory_embedder.http.certificate import ServingCertificate
from memory_embedder.http.connections import BoundedConfig, BoundedServer, ConnectionLimits
from memory_embedder.http.handshakes import TlsServer
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.scheduling.service import EmbeddingService
from memory_embedder.settings import EmbedderSettings
from memory_embedder.telemetry.metrics import Metrics
from memory_embedder.telemetry.termination import write_termination_message
from memory_embedder.telemetry.tracing import make_tracing

_MOST_CONNECTIONS = 512  # of callers; the memory that each can take without being counted is bounded
_MOST_REFUSED = 2048  # connections beyond these that are answered by 429 at one time
_MOST_REFUSED_TLS = 128  # the same with TLS, whose buffers take a quarter of a megabyte each
_PROBE_CONNECTIONS = 32
_EVERY_ADDRESS = "::"


def serve(settings: EmbedderSettings) -> int:
    """Serve until SIGTERM or SIGINT, or until the model cannot be served, then return the exit status.

    The status is 0 if every admitted request was answered. It is 1 if a request was not answered or the model could not
    be served.

    Raises:
        EmbedderError: a port cannot be opened, or the settings contradict themselves; then nothing is loaded.
    """
    return_large_blocks()
    logger = structlog.get_logger("memory_embedder.server")
    service = EmbeddingService(settings, load_engine, Metrics(Lane), make_tracing(settings.otlp_endpoint))
    files = settings.tls_files()
    certificate = ServingCertificate(*files, service.metrics) if files else None
    server = _make_server(service, certificate)
    listening, probed = (listen(settings.host, port) for port in (settings.port, settings.probe_port))
    ports = {"port": listening.getsockname()[1], "probe_port": probed.getsockname()[1]}
    _warn_of_unknown_prefixes(settings)
    logger.info("Listening", host=settings.host, tls=certificate is not None, **ports)
    failures: list[EmbedderError] = []

    def load() -> None:
        try:
            service.load()
        except Exception as unexpected:
            error = _as_refusal(unexpected)
            service.refuse(error)
            logger.error(  # noqa: TRY400 -- a refusal is explained by its message
                "The model cannot be served",
                reason=error.kind.code,
                message=error.message,
                exc_info=None if error is unexpected else unexpected,
            )
            if error.kind is not ErrorKind.GPU_NOT_USED:  # that pod stays up: metrics and readiness say why
                failures.append(error)
                write_termination_message(error)
                server.should_exit = True

    loader = threading.Thread(target=load, name="loader", daemon=True)
    loader.start()

    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(_run(service, server, listening, _make_probe_server(service, certificate), probed))
    finished = service.close()
    logger.info("Stopped", answered_everything=finished)
    status = 1 if failures or not finished else 0
    if loader.is_alive() or service.computing:
        os._exit(status)  # that thread would crash on what the interpreter frees at its end
    return status


def _warn_of_unknown_prefixes(settings: EmbedderSettings) -> None:
    if settings.has_unknown_prefixes():
        structlog.get_logger("memory_embedder.server").warning(
            "No prefixes are known for this model; if it was trained with any, say them with --query-prefix and "
            "--document-prefix",
            model=settings.profile().name,
        )


def _make_server(service: EmbeddingService, certificate: ServingCertificate | None) -> BoundedServer:
    settings, limits = service.settings, service.limits
    most_refused = _MOST_REFUSED if certificate is None else _MOST_REFUSED_TLS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = ConnectionLimits(
        connections=min(_MOST_CONNECTIONS, files // 2),
        refused=min(most_refused, files // 4),
        body_seconds=limits.body_seconds + 5,  # the application itself answers that the body is late
    )
    config = BoundedConfig(
        build_app(service),
        settings.host,
        settings.port,
        connections,
        drain_seconds=limits.drain_seconds + 5,
        on_refusal=service.metrics.count_unread,
    )
    return BoundedServer(config) if certificate is None else TlsServer(config, certificate, service.metrics)


def _make_probe_server(service: EmbeddingService, certificate: ServingCertificate | None) -> BoundedServer:
    settings = service.settings
    connections = ConnectionLimits(connections=_PROBE_CONNECTIONS, body_seconds=5, refused=_PROBE_CONNECTIONS)
    return BoundedServer(
        BoundedConfig(
            build_probe_app(service, certificate),
            settings.host,
            settings.probe_port,
            connections,
            drain_seconds=1,
            on_refusal=service.metrics.count_unread,
        )
    )


def listen(host: str, port: int) -> socket.socket:
    """Open a port, which is chosen by the system if `port` is 0.

    The host `::` stands for every address of both families, or of IPv4 alone where the machine has no IPv6.

    Raises:
        EmbedderError: the port cannot be opened, for example because another process uses it.
    """
    try:
        if host == _EVERY_ADDRESS:
            return _listen_everywhere(port)
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]  # behind it stands the address again
        raise configuration_error(
            f"Port {port} of {host} cannot be opened ({reason}); end the process that uses it, or choose another "
            "--host, --port or --probe-port.",
        ) from error


def _listen_everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server((_EVERY_ADDRESS, port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:  # IPv6 is switched off
                raise
    return socket.create_server(("", port))


async def _run(
    service: EmbeddingService,
    server: BoundedServer,
    listening: socket.socket,
    probe_server: BoundedServer,
    probed: socket.socket,
) -> None:
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, number)
    async with asyncio.TaskGroup() as group:
        group.create_task(probe_server.serve([probed]))
        shutdown = group.create_task(shut_down(service, server, signals))
        await server.serve([listening])
        shutdown.cancel()
        probe_server.should_exit = True


async def shut_down(service: EmbeddingService, server: uvicorn.Server, signals: asyncio.Queue[int]) -> None:
    """Wait for a signal, then drain and stop the server after the shutdown delay.

    There is no delay after SIGINT, and a second signal ends the delay. What has not been answered when the time to
    drain is over is refused, so that callers send it elsewhere, before the server cuts the connections.
    """
    delay = service.settings.shutdown_delay_seconds if await signals.get() == signal.SIGTERM else 0.0
    if service.begin_termination():
        with suppress(TimeoutError):
            await asyncio.wait_for(signals.get(), delay)
    service.begin_drain()  # admission ends at once; admitted requests are still answered
    server.should_exit = True
    await asyncio.sleep(service.limits.drain_seconds)
    service.give_up()


def _as_refusal(error: Exception) -> EmbedderError:
    if isinstance(error, EmbedderError):
        return error
    return configuration_error(f"Loading failed unexpectedly ({type(error).__name__}); see the log.")


def load_engine(options: EngineOptions) -> Engine:
    """Load the llama.cpp engine, which is imported here because the import takes a while: the ports must open first."""
    from memory_embedder.engine.llama import LlamaEngine

    return LlamaEngine(options)
