"""Runs the service in a process: it listens at once, loads the model meanwhile, and drains on SIGTERM.

The port opens before the model is loaded, so that probes get the state of the service instead of a refused connection.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import orjson
import structlog
import uvicorn

from memory_embedder.engine.protocol import Engine
from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.hardening import forbid_core_dumps, return_large_blocks
from memory_embedder.http.app import build_app
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.scheduling.plan import LoadPlan
from memory_embedder.scheduling.service import EmbeddingService
from memory_embedder.settings import EmbedderSettings
from memory_embedder.telemetry.metrics import Metrics
from memory_embedder.telemetry.tracing import make_tracing

TERMINATION_LOG = Path("/dev/termination-log")  # Kubernetes shows this file as the container's termination message


class EmbedderServer(uvicorn.Server):
    """A server that starts to drain the service on a signal, before it stops listening."""

    def __init__(self, config: uvicorn.Config, service: EmbeddingService) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop admission on a signal; admitted requests are still answered."""
        self._service.begin_drain()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals until the process ends; the original raises them again, which interrupts a drain."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.handle_exit)
        yield


def serve(settings: EmbedderSettings) -> int:
    """Serve until a signal, and return the exit status.

    The status is 0 if every admitted request was answered, 1 if not or if the model cannot be served.
    """
    forbid_core_dumps()
    return_large_blocks()
    logger = structlog.get_logger("memory_embedder.server")
    service = EmbeddingService(settings, load_engine, Metrics(Lane), make_tracing(settings.otlp_endpoint))
    config = uvicorn.Config(
        build_app(service),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(service.limits.drain_seconds) + 5,
    )
    server = EmbedderServer(config, service)
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
                _write_termination_message(error)
                server.should_exit = True

    loader = threading.Thread(target=load, name="loader", daemon=True)
    loader.start()
    server.run()
    finished = service.close()
    logger.info("Stopped", answered_everything=finished)
    return 1 if failures or not finished else 0


def _write_termination_message(error: EmbedderError) -> None:
    if TERMINATION_LOG.exists():
        with suppress(OSError):
            TERMINATION_LOG.write_bytes(orjson.dumps({"reason": error.kind.reason, "message": error.message}))


def _as_refusal(error: Exception) -> EmbedderError:
    if isinstance(error, EmbedderError):
        return error
    return EmbedderError(ErrorKind.CONFIGURATION, f"Loading failed unexpectedly ({type(error).__name__}); see the log.")


def load_engine(plan: LoadPlan) -> Engine:
    """Load llama.cpp's engine; it is imported here, since that takes a while and the port opens first."""
    from memory_embedder.engine.llama import EngineOptions, LlamaEngine

    return LlamaEngine(
        EngineOptions(
            path=plan.path,
            profile=plan.profile,
            batch_tokens=plan.largest_batch,
            contexts=plan.most_contexts,
            gpu_layers=plan.gpu_layers,
            gpu_memory_limit=plan.gpu_memory_limit,
        )
    )
