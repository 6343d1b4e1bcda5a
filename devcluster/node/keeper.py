"""The keeper, the outer process of a node: it starts the namespaces and ends them, and has the node's files removed.

Three things end a node: a signal to the keeper, the end of the process that asked for an attached node, and the end of
the init process. The keeper notices the end of the asking process by the end of a pipe, so that even `kill -9` is
noticed. If the keeper itself is killed, the kernel kills the init process. When the keeper has ended, the janitor
removes the node's files. The janitor is a process in a session of its own. Keeper and janitor hold the cluster's lock,
so the lock is free only when nothing of the node is left.

Only the standard library is imported, so that the process is small and starts at once.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from devcluster.node.cleanup import clean
from devcluster.node.layout import Layout, Plan

DETACH = b"d"
_PR_SET_PDEATHSIG = 1
_INIT_SECONDS = 10.0
_END_MILLISECONDS = 30_000


def main(plan_file: str) -> int:
    """Start a node, and wait until it ends."""
    plan = Plan.read(Path(plan_file))
    signals = _signals_as_descriptor()
    announce = _start_janitor(plan)
    process = subprocess.Popen(
        [
            *("unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"),
            *(sys.executable, "-m", "devcluster.node.init", plan_file),
        ],
        stdin=subprocess.DEVNULL,
        pass_fds=(plan.listener_descriptor,),
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
    )
    os.close(plan.listener_descriptor)
    init = _child_of(process.pid)
    if init is not None:
        os.write(announce, f"{init}\n".encode())
        record = {"keeper": os.getpid(), "init": init}
        Layout(Path(plan.root)).record.write_text(json.dumps(record), encoding="utf-8")
    _wait(process.pid, plan.parent_descriptor, signals)
    process.kill()
    process.wait()
    return 0


def _wait(pid: int, parent: int | None, signals: int) -> None:
    """Wait until the node ends by itself or has to be ended."""
    poller = select.poll()
    for descriptor in (os.pidfd_open(pid), signals, *(() if parent is None else (parent,))):
        poller.register(descriptor, select.POLLIN)
    while True:
        for descriptor, _ in poller.poll():
            if descriptor != parent or os.read(descriptor, 1) != DETACH:
                return
            poller.unregister(descriptor)


def _signals_as_descriptor() -> int:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    return reader


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _child_of(parent: int) -> int | None:
    """Return the process id of the first child of `parent`, or None if none appears within ten seconds."""
    deadline = time.monotonic() + _INIT_SECONDS
    while time.monotonic() < deadline and Path(f"/proc/{parent}").exists():
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1] == str(parent):
                    return int(entry.parent.name)
        time.sleep(0.01)
    return None


def _start_janitor(plan: Plan) -> int:
    """Fork the janitor process, and return the descriptor of a pipe to it.

    When the keeper ends, the kernel closes the pipe, and the janitor cleans up.
    """
    reader, writer = os.pipe()
    if os.fork() > 0:
        os.close(reader)
        return writer
    os.setsid()
    os.close(writer)
    os.close(plan.listener_descriptor)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _wait_for_end(reader)
    clean(Path(plan.root), plan.cgroup)
    os._exit(0)


def _wait_for_end(reader: int) -> None:
    announced = os.read(reader, 32)
    init = None
    if announced:
        with suppress(OSError):
            init = os.pidfd_open(int(announced))
        os.read(reader, 1)
    if init is not None:
        # The kernel reports the first process of a PID namespace as ended only when all others in it have ended.
        poller = select.poll()
        poller.register(init, select.POLLIN)
        poller.poll(_END_MILLISECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
