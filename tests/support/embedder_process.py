"""Runs the embedder as users start it."""

import contextlib
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from devcluster.retrying import until

_SECONDS = 120.0
_PROGRAM = (sys.executable, "-m", "memory_embedder")


@contextlib.contextmanager
def running_embedder(
    model: Path, *options: str, program: Sequence[str] = _PROGRAM, seconds: float = _SECONDS
) -> Iterator[str]:
    """Run the embedder with the file of the default model on the CPU, and yield its URL once it is ready.

    `options` are further ones of its command line; `program` begins it, and is ready within `seconds`.
    """
    ports = [_free_port(), _free_port()]
    command = [
        *program, "serve", "--model", "all-MiniLM-L6-v2", "--model-file", str(model),
        "--gpu-layers", "0", "--allow-cpu", "--host", "127.0.0.1", "--port", str(ports[0]),
        "--probe-port", str(ports[1]), *options,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until("the embedder is ready", lambda: _is_ready(ports[1]), seconds=seconds)
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        process.terminate()
        process.wait()


def _is_ready(port: int) -> bool:
    with contextlib.suppress(OSError):
        address = f"http://127.0.0.1:{port}/readyz"
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
