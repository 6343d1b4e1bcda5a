"""Starts components in the order of their dependencies, waits for each with a deadline, and keeps them running.

The supervisor is the first process of a PID namespace, so it also reaps the processes that containers leave behind;
when it exits, the kernel ends all other processes of the namespace. If a component dies while the node starts, the
start fails. If it dies later, the supervisor restarts it, unless it has died four times within a minute.
"""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from devcluster.node.components import Component
from devcluster.node.events import EventLog, log_tail
from devcluster.node.probing import is_ready

_TICK_SECONDS = 0.05
_MAX_RESTARTS = 3
_RESTARTS_SECONDS = 60.0  # in which no more than so many restarts are tried


class ComponentFailedError(Exception):
    """A component died, or did not become ready in time."""


class Supervisor:
    """A supervisor of a node's components, which runs until a component fails for good."""

    def __init__(
        self, components: Sequence[Component], log_file: Callable[[str], Path], events: EventLog, ready_seconds: float
    ) -> None:
        self._components = {component.name: component for component in components}
        self._awaited = {component.name for component in components if not component.background}
        self._log_file = log_file
        self._events = events
        self._ready_seconds = ready_seconds
        self._names: dict[int, str] = {}
        self._deadlines: dict[str, float] = {}
        self._ready: set[str] = set()
        self._restarts: dict[str, list[float]] = {}
        self._up = False

    def run(self) -> None:
        """Start, probe and restart components until one of them fails for good.

        Raises:
            ComponentFailedError: a component died too often or did not become ready in time.
        """
        while True:
            self._reap()
            self._start_what_can_start()
            self._probe()
            if not self._up and self._ready >= self._awaited:
                self._up = True
                self._events.add("up")
            time.sleep(_TICK_SECONDS)

    def _start_what_can_start(self) -> None:
        started = set(self._deadlines) | self._ready
        for component in self._components.values():
            if component.name not in started and self._ready.issuperset(component.needs):
                self._start(component)
                self._events.add("started", component.name)

    def _start(self, component: Component) -> None:
        path = self._log_file(component.name)
        with path.open("ab") as log:
            try:
                process = subprocess.Popen(
                    component.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=component.descriptors,
                )
            except OSError as error:
                raise ComponentFailedError(f"{component.name} cannot be started: {error}") from error
        self._names[process.pid] = component.name
        self._deadlines[component.name] = time.monotonic() + self._ready_seconds
        # Its end is seen by waiting for any child; the handle must not wait for it as well.
        process.returncode = 0

    def _probe(self) -> None:
        for name, deadline in list(self._deadlines.items()):
            if name in self._ready:
                continue
            component = self._components[name]
            if not component.is_task and is_ready(component.ready):
                self._mark_ready(name)
            elif time.monotonic() > deadline:
                raise ComponentFailedError(
                    self._with_log(f"{name} was not ready after {self._ready_seconds:.0f} s", name)
                )

    def _mark_ready(self, name: str) -> None:
        self._ready.add(name)
        self._events.add("ready", name)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self._names.pop(pid, None)
            if name is not None:
                self._ended(self._components[name], os.waitstatus_to_exitcode(status))

    def _ended(self, component: Component, code: int) -> None:
        if component.is_task and code == 0:
            self._mark_ready(component.name)
            return
        reason = self._with_log(f"{component.name} ended with status {code}", component.name)
        now = time.monotonic()
        recent = [at for at in self._restarts.get(component.name, ()) if now - at < _RESTARTS_SECONDS]
        if component.is_task or component.name not in self._ready or len(recent) >= _MAX_RESTARTS:
            raise ComponentFailedError(reason)
        self._events.add("died", component.name, reason)
        self._restarts[component.name] = [*recent, now]
        self._start(component)
        self._events.add("restarted", component.name)

    def _with_log(self, reason: str, name: str) -> str:
        tail = log_tail(self._log_file(name))
        return f"{reason}; the end of its log:\n{tail}" if tail else reason
