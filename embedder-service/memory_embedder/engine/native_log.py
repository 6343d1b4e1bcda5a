"""Receives llama.cpp's log messages: reads facts about a loading model from them, and never repeats their text.

The number of layers that really went to the GPU appears only in a log message. A message during computation might in
some version quote the text that is being embedded, so for a warning only the name of the llama.cpp function that issued
it is logged. CUDA's own errors are repeated, since they are fixed sentences such as "out of memory".
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import structlog
from llama_cpp import llama_cpp as native

_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_CUDA_ERROR = re.compile(r"CUDA error: [A-Za-z0-9 ,.'()/-]{1,120}$")
_FUNCTION = re.compile(r"^([A-Za-z_][A-Za-z0-9_:]{0,60}): ")
_WARNING = 3
_ERROR = 4


class NativeLog:
    """The receiver of llama.cpp's log messages; there is one per process, since llama.cpp has one log callback."""

    def __init__(self) -> None:
        self.layers_offloaded = 0
        self.layers_total = 0
        self._loading = threading.Event()
        self._quiet = threading.Event()
        self._logger = structlog.get_logger("memory_embedder.llama")
        self._callback = native.llama_log_callback(self._receive)  # kept: the library holds only the address

    def install(self) -> None:
        """Register this receiver as llama.cpp's log callback."""
        native.llama_log_set(self._callback, None)

    @contextmanager
    def expected(self) -> Iterator[None]:
        """Within the block, ignore warnings about settings chosen on purpose, such as a batch wider than the window."""
        self._quiet.set()
        try:
            yield
        finally:
            self._quiet.clear()

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Within the block, which loads a model, read facts about the model from llama.cpp's messages."""
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
            error = _CUDA_ERROR.match(message.rstrip())
            reason = {"reason": error.group()} if error else {}
            self._logger.warning(
                "llama.cpp warned", function=found.group(1) if found else "unknown", level=level, **reason
            )

    def read(self, message: str) -> None:
        """Read the number of layers on the GPU from a message, if the message contains it."""
        found = _OFFLOADED.search(message)
        if found:
            self.layers_offloaded, self.layers_total = int(found.group(1)), int(found.group(2))


@cache
def native_log() -> NativeLog:
    """Return the receiver of this process; the first call registers it with llama.cpp."""
    log = NativeLog()
    log.install()
    return log
