"""Logging of the long-running commands: events with fields on standard error, as JSON in a cluster."""

import logging
import sys

import structlog
from stamina.instrumentation import set_on_retry_hooks

from memory_recall.settings import Settings


def configure(settings: Settings) -> None:
    """Send events to standard error; tracebacks carry no local variables, since those hold memory text."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    set_on_retry_hooks(())  # stamina would log every attempt; an outage is reported once, by whoever waits
