"""Structured logs without content.

Tracebacks are reduced to where they happened: an exception's message or a local variable may hold a caller's text, a
file and line cannot. The HTTP server's and library's records go through the same pipe.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any

import structlog

Event = MutableMapping[str, Any]
_QUIET = ("httpx", "httpcore", "asyncio", "urllib3")  # at debug level they print what is sent and received
_SERVER = ("uvicorn", "uvicorn.error", "uvicorn.access")  # its default set-up prints tracebacks past the root's handler


def configure_logging(level: str, form: str) -> None:
    """Sets up the process's logs, once, before anything is logged."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        frames_only,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    numeric = logging.getLevelNamesMapping()[level.upper()]
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
    root.setLevel(numeric)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in _SERVER:
        _hand_to_root(logging.getLogger(name))


def _hand_to_root(logger: logging.Logger) -> None:
    logger.handlers[:] = []
    logger.propagate = True


def frames_only(_logger: object, _method: str, event: Event) -> Event:
    """Replaces an exception by its class and the places it passed."""
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
    """Drops what foreign records attach beyond their message."""
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event["logger"] = record.name
        record.exc_info = None
        record.exc_text = None
    event.pop("positional_args", None)
    return event
