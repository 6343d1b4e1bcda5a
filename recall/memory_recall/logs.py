"""Structured logs on standard error, for the operator and the `memory` commands: one event a line, JSON in a cluster.

Libraries log to the same stream, but only warnings and errors, because their lower levels print objects and URLs.
Tracebacks carry no local variables, because those hold memory text. What others have written, such as the answer of a
server, cannot drive a terminal or forge a line: JSON escapes it, and lines for people are cleaned.
"""

import io
import logging
import sys
from typing import Literal, TextIO

import structlog
from stamina.instrumentation import set_on_retry_hooks
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from memory_recall.visible_text import visible_line, visible_text


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
        cache_logger_on_first_use=False,
    )
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if fmt == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_visible_traceback)
    )
    formatting: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    formatting.append(structlog.processors.format_exc_info if fmt == "json" else _visible)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[*formatting, renderer])
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(package).setLevel(level.upper())
    set_on_retry_hooks(())  # stamina would log every attempt; whoever waits reports an outage once


def _visible(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Clean the texts of an event; values of other types are shown as Python writes them, with escapes."""
    return {name: visible_line(value) if isinstance(value, str) else value for name, value in event.items()}


def _visible_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
    """Write a traceback without local variables; the message of its exception may hold what others have written."""
    written = io.StringIO()
    structlog.dev.plain_traceback(written, exc_info)
    stream.write(visible_text(written.getvalue()))
