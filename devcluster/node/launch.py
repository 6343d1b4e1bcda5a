"""Starts and ends a node from the user's process: prepares files, starts the keeper, and waits until the node is up."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from devcluster import kubeconfig, locks
from devcluster.building import versions
from devcluster.errors import DevclusterError
from devcluster.node import pki
from devcluster.node.addons import VOLUME_COUNT
from devcluster.node.cleanup import clean
from devcluster.node.events import Event, log_tail, read
from devcluster.node.keeper import DETACH
from devcluster.node.layout import API_PORT, NODE_ADDRESS, Layout, Plan
from devcluster.preflight import search_path
from devcluster.progress import Step
from devcluster.settings import REPOSITORY

_POLL_SECONDS = 0.05
_END_SECONDS = 180.0
CONTEXT_PREFIX = "devcluster-"


@dataclass
class RunningNode:
    """A node that this process started. It ends when the pipe `lifeline` is closed, unless it was detached."""

    layout: Layout
    keeper: "subprocess.Popen[bytes]"
    lifeline: int

    def detach(self) -> None:
        """Let the node keep running after this process ends."""
        os.write(self.lifeline, DETACH)
        os.close(self.lifeline)
        # Not waited for by anyone here; init of the machine will.
        self.keeper.returncode = 0


def launch(
    name: str, root: Path, *, programs: dict[str, Path], images: dict[str, Path], ready_seconds: float
) -> RunningNode:
    """Prepare the node's files and start its keeper process, without waiting until the node is ready."""
    layout = Layout(root)
    lock = locks.try_lock(layout.lock)
    if lock is None:
        raise DevclusterError(
            f"a cluster named {name} is already running",
            remedy=f"use it, end it with `python -m devcluster down --name {name}`, or choose another --name",
        )
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    reader, writer = os.pipe()
    try:
        _prepare_directories(layout, name)
        _write_credentials(layout, name, listener.getsockname()[1])
        plan = Plan(
            name=name,
            root=str(root),
            programs={key: str(path) for key, path in programs.items()},
            images={key: str(path) for key, path in images.items()},
            volumes=VOLUME_COUNT,
            pause_image=versions.PAUSE_IMAGE,
            ready_seconds=ready_seconds,
            parent_descriptor=reader,
            lock_descriptor=lock,
            listener_descriptor=listener.fileno(),
        )
        plan.write(layout.plan)
        keeper = _start_keeper(plan, layout)
    except BaseException:
        os.close(writer)
        raise
    finally:
        os.close(reader)
        os.close(lock)
        listener.close()
    return RunningNode(layout, keeper, writer)


def _prepare_directories(layout: Layout, name: str) -> None:
    clean(layout.root, Plan.cgroup_of(name))
    shutil.rmtree(layout.logs, ignore_errors=True)
    layout.logs.mkdir(parents=True)
    layout.data.mkdir(mode=0o700)
    layout.config.mkdir()


def _write_credentials(layout: Layout, name: str, port: int) -> None:
    clients = pki.write(layout.pki)
    authority = (layout.pki / "ca.crt").read_bytes()
    inside = f"https://{NODE_ADDRESS}:{API_PORT}"
    targets = {layout.internal_kubeconfig(who): (who, inside) for who in clients}
    targets[layout.kubeconfig] = ("admin", f"https://127.0.0.1:{port}")
    for path, (who, server) in targets.items():
        pair = clients[who]
        text = kubeconfig.render(
            context=f"{CONTEXT_PREFIX}{name}",
            server=server,
            authority=authority,
            certificate=pair.certificate,
            key=pair.key,
        )
        kubeconfig.write_private(path, text)


def _start_keeper(plan: Plan, layout: Layout) -> "subprocess.Popen[bytes]":
    descriptors = [plan.lock_descriptor, plan.listener_descriptor]
    if plan.parent_descriptor is not None:
        descriptors.append(plan.parent_descriptor)
    with (layout.logs / "keeper.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "devcluster.node.keeper", str(layout.plan)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PATH": search_path()},
            pass_fds=descriptors,
            start_new_session=True,
        )


def wait_until_up(running: RunningNode, steps: Step) -> None:
    """Wait until the node is up; if it fails, raise an error with the component's name and the end of its log."""
    offset = 0
    pending: list[str] = []
    while True:
        events, offset = read(running.layout.events, offset)
        for event in events:
            if _update_pending(event, pending):
                return
            steps.note(f"waiting for {', '.join(pending)}")
        if running.keeper.poll() is not None and not events:
            log = log_tail(running.layout.logs / "keeper.log")
            raise DevclusterError("the node ended before it was ready", detail=log, remedy=f"see {running.layout.logs}")
        time.sleep(_POLL_SECONDS)


def wait_until_ready(layout: Layout, component: str) -> None:
    """Wait until a background component of a running node is ready."""
    offset = 0
    while True:
        events, offset = read(layout.events, offset)
        if any(event.kind == "ready" and event.component == component for event in events):
            return
        failure = next((event.detail for event in events if event.kind == "failed"), None)
        if failure is not None or not is_running(layout):
            raise DevclusterError(f"the node ended before {component} was ready", detail=failure or "")
        time.sleep(_POLL_SECONDS)


def _update_pending(event: Event, pending: list[str]) -> bool:
    """Add a component that has started to `pending`, or remove one that is ready; return whether the node is up."""
    if event.kind == "started":
        pending.append(event.component)
    elif event.kind == "ready" and event.component in pending:
        pending.remove(event.component)
    elif event.kind == "failed":
        raise DevclusterError("the node could not be started", detail=event.detail)
    return event.kind == "up"


def is_running(layout: Layout) -> bool:
    """Return whether any process of the cluster lives; the cluster's lock is held for exactly that long."""
    descriptor = locks.try_lock(layout.lock) if layout.root.is_dir() else -1
    if descriptor is None:
        return True
    if descriptor >= 0:
        os.close(descriptor)
    return False


def process_ids_of(layout: Layout) -> dict[str, int]:
    """Return the process ids of a running node's keeper and init."""
    try:
        record: dict[str, int] = json.loads(layout.record.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DevclusterError("the node is just starting or ending", remedy="try again in a moment") from error
    return record


def prune_logs(state_dir: Path, *, keep: int) -> None:
    """Remove the state directories of all ended clusters except the `keep` newest ones."""
    if not state_dir.is_dir():
        return
    ended = [root for root in state_dir.iterdir() if root.is_dir() and not is_running(Layout(root))]
    for root in sorted(ended, key=lambda path: path.stat().st_mtime, reverse=True)[keep:]:
        shutil.rmtree(root, ignore_errors=True)


def end(name: str, layout: Layout) -> bool:
    """End a running node, or remove what a killed node left behind; return False if neither was found."""
    if not layout.root.is_dir():
        return False
    descriptor = locks.try_lock(layout.lock)
    found = descriptor is None or layout.data.exists()
    deadline = time.monotonic() + _END_SECONDS
    while descriptor is None:
        _signal_keeper(layout)
        if time.monotonic() > deadline:
            raise DevclusterError(
                f"the cluster {name} did not end", remedy=f"see {layout.logs} and the processes below it"
            )
        time.sleep(_POLL_SECONDS)
        descriptor = locks.try_lock(layout.lock)
    clean(layout.root, Plan.cgroup_of(name))
    os.close(descriptor)
    return found


def _signal_keeper(layout: Layout) -> None:
    try:
        os.kill(process_ids_of(layout)["keeper"], signal.SIGTERM)
    except (DevclusterError, ProcessLookupError):
        # Not started yet, or ended and being cleaned up: the caller's loop waits for the lock.
        return
