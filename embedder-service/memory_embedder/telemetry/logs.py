"""Structured logs that hold no caller's text.

Tracebacks are reduced to their files and lines, since an exception's message or a local variable may hold a caller's
text. The log records of the HTTP server and of libraries are reduced in the same way.
"""

import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any

import structlog

Event = MutableMapping[str, Any]
_QUIET = ("httpx", "httpcore", "asyncio", "urllib3")  # at debug level they log what is sent and received
_SERVER = ("uvicorn", "uvicorn.error", "uvicorn.access")  # its default set-up prints tracebacks past the root's handler


def configure_logging(level: str = "info") -> None:
    """Configure the process's logs before anything is logged: JSON lines on stderr, or plain lines on a terminal."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        frames_only,
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, without_arguments],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in _SERVER:
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.propagate = True


def frames_only(_logger: object, _method: str, event: Event) -> Event:
    """Replace an exception in a log event by its class, and the function, file and line of each stack frame."""
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    if isinstance(info, BaseException):
        info = (type(info), info, info.__traceback__)
    if isinstance(info, tuple) and info[0] is not None:
        event["error_class"] = info[0].__name__
        event["frames"] = [f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in traceback.extract_tb(info[2])]
    return event


def without_arguments(_logger: object, _method: str, event: Event) -> Event:
    """Drop the exception and the arguments from a record of Python's `logging`, but keep its message."""
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event["logger"] = record.name
        record.exc_info = None
        record.exc_text = None
    event.pop("positional_args", None)
    return event
