"""Receives llama.cpp's log messages: facts are read from them while a model loads, and no message is logged as it is.

How many layers really went to the GPU is in no interface, only in a message. Messages during computation could one day
quote what is computed, so only the name of the function that warns is logged.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import structlog
from llama_cpp import llama_cpp as native

_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_FUNCTION = re.compile(r"^([A-Za-z_][A-Za-z0-9_:]{0,60}): ")
_WARNING = 3
_ERROR = 4


class NativeLog:
    """A receiver of the library's messages; one per process, like the library's callback."""

    def __init__(self) -> None:
        self.layers_offloaded = 0
        self.layers_total = 0
        self._loading = threading.Event()
        self._quiet = threading.Event()
        self._logger = structlog.get_logger("memory_embedder.llama")
        self._callback = native.llama_log_callback(self._receive)  # kept: the library holds only the address

    def install(self) -> None:
        """Register as the library's callback."""
        native.llama_log_set(self._callback, None)

    @contextmanager
    def expected(self) -> Iterator[None]:
        """Ignore warnings about what is done on purpose, such as a batch wider than the window."""
        self._quiet.set()
        try:
            yield
        finally:
            self._quiet.clear()

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Read facts from messages while a model is being loaded."""
        self.layers_offloaded = self.layers_total = 0
        self._loading.set()
        try:
            yield
        finally:
            self._loading.clear()

    def _receive(self, level: int, text: bytes, _user: object) -> None:
        message = text.decode("utf-8", "replace")
        if self._loading.is_set():
            self.read(message)
        if level == _ERROR or (level == _WARNING and not self._quiet.is_set()):
            found = _FUNCTION.match(message)
            self._logger.warning("llama.cpp warned", function=found.group(1) if found else "unknown", level=level)

    def read(self, message: str) -> None:
        """Read the number of offloaded layers from a message, if it has it."""
        found = _OFFLOADED.search(message)
        if found:
            self.layers_offloaded, self.layers_total = int(found.group(1)), int(found.group(2))


@cache
def native_log() -> NativeLog:
    """Return the process's receiver, which is registered at the first call."""
    log = NativeLog()
    log.install()
    return log
