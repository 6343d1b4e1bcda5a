"""What a command sets up for its whole process ends with the test that ran it."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def logging_of_the_test() -> Iterator[None]:
    """Undo the set-up of logging by a command that the test runs in its own process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)
