"""Watches one Kubernetes object with a single `kubectl get --watch`.

Polling instead would start a kubectl process every second, which takes a tenth of the machine's processor time.
"""

import json
import queue
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

Object = Mapping[str, Any]


class Watch:
    """A running `kubectl get NAME --watch -o json`, which is restarted whenever it ends inside the `with` block."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = [*command, "--watch", "--output=json"]
        self._states: queue.SimpleQueue[Object] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._read, name="kubectl-watch", daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._process is not None:
            self._process.terminate()
        self._reader.join()

    def next(self, timeout: float) -> Object | None:
        """Return the latest new state of the object; None if there is no new state within `timeout` seconds."""
        try:
            state = self._states.get(timeout=timeout)
        except queue.Empty:
            return None
        while not self._states.empty():
            state = self._states.get()
        return state

    def _read(self) -> None:
        while not self._closing.is_set():
            with subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            ) as process:
                self._process = process
                if self._closing.is_set():  # it closed between the two lines above
                    process.terminate()
                for state in documents(process.stdout or ()):
                    self._states.put(state)
            self._closing.wait(1.0)


def documents(lines: Iterable[str]) -> Iterator[Object]:
    """Parse a stream of JSON objects, each of which ends with a closing brace on a line of its own."""
    collected: list[str] = []
    for line in lines:
        collected.append(line)
        if line.rstrip("\n") == "}":
            yield json.loads("".join(collected))
            collected.clear()
