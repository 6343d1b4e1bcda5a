"""Structured logs on standard error, for the operator and the `memory` commands: one event a line, JSON in a cluster.

Libraries log to the same stream, but only warnings and errors, because their lower levels print objects and URLs.
Tracebacks carry no local variables, because those hold memory text.
"""

import logging
import sys
from typing import Literal

import structlog
from stamina.instrumentation import set_on_retry_hooks
from structlog.typing import Processor


def configure(*, fmt: Literal["json", "console"], level: str, package: str = "memory_recall") -> None:
    """Set up this process's logging: `package` logs from `level` upwards, all other loggers from warnings upwards."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if fmt == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    formatting: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if fmt == "json":
        formatting.append(structlog.processors.format_exc_info)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[*formatting, renderer])
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(package).setLevel(level.upper())
    set_on_retry_hooks(())  # stamina would log every attempt; whoever waits reports an outage once
